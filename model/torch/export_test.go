package torch

// PID is the process id of the engine's program, and Dir its directory.
func (e *Engine) PID() int { return e.process.about.PID }

// Dir is the directory of the engine's program.
func (e *Engine) Dir() string { return e.process.dir }
