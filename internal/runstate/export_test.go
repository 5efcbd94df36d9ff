package runstate

// End is end, for tests.
var End = end
