package operator

// Mover lets tests move a pointer without recording an action.
type Mover = mover
