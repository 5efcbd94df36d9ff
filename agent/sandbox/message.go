package sandbox

// command is the hidden subcommand under which an executable is the first process of a
// sandbox: "fulgurite-sandbox agent-sandbox policy program arguments…".
const command = "agent-sandbox"

// controlFD is the socket over which the first process sends its messages.
const controlFD = 3

// message is what the first process of a sandbox says, one a packet: first that it is
// ready, with the listeners of its routes, or why not; then that the program runs, or why
// not; then how the program ended. The program itself can't send messages, because it does
// not inherit the socket.
type message struct {
	// Unavailable says why the machine can't isolate, Error why the program can't be
	// started.
	Unavailable string `json:"unavailable,omitempty"`
	Error       string `json:"error,omitempty"`
	Ready       bool   `json:"ready,omitempty"`
	Started     bool   `json:"started,omitempty"`
	Ended       bool   `json:"ended,omitempty"`
	Code        int    `json:"code,omitempty"`
	Signal      int    `json:"signal,omitempty"`
}

// messageBytes bounds a message.
const messageBytes = 16 << 10
