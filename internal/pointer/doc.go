// Package pointer lets users move the promoted pointer of a run: promote a version, roll
// the pointer back to an earlier version, pin a version, and unpin it. It uses only the
// store, so it also works on runs that have ended. It works on running runs, too; their
// own promotions yield to a person's.
//
// It is not the promotion rule, which decides between a candidate and the promoted
// version. Every move records who made it and why. A version that does not exist or that
// was not evaluated is refused.
package pointer
