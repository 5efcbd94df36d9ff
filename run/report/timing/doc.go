// Package timing tells where the time of a run went: for each finished step from the begin
// of its first attempt to its version on record, for each evaluation, and for version 0.
//
// Attempts overlap, so their time is divided twice. In the wall-clock time of a step each
// moment belongs to one part: the first, in the order of [Rollouts], that any attempt is
// in. The parts of a step sum to its seconds. In attempt-seconds each attempt's own time is
// divided in the same way, and the sums over all attempts are told.
//
// All times are those on record. The clocks of several machines may differ; where that
// would give a part less than no time, it has none. The package only reads, and it reads no
// text and no token.
package timing
