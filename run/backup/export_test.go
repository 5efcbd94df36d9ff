package backup

// WriteUntil is Write with a function that is called after each stage.
var WriteUntil = write

// WriteFleetUntil is WriteFleet with a function that is called after each stage.
var WriteFleetUntil = writeFleet
