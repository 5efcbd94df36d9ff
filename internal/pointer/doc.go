// Package pointer lets people move the promoted pointer of a run: roll it back to an
// earlier version, pin a version, and unpin it. It works on the store alone, so also on
// runs that have ended and on runs under way, whose own promotions yield to a person's.
//
// It is not the promotion rule, which decides between a candidate and the promoted
// version. Every move says who made it and why. A version that does not exist or that
// nobody evaluated is refused.
package pointer
