package reflector

import "time"

// WithPause sets the time between the tries of a command.
func WithPause(r Reflector, pause time.Duration) Reflector {
	r.(*program).pause = pause
	return r
}
