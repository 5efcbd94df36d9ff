// Package pointer lets people move the promoted pointer of a run: back to an
// earlier version, to one that they pin, and free again. It works on the store
// alone, so also on runs that are under way, whose own promotions give way, and
// on runs that have ended.
//
// It is not the promotion rule, which decides between a candidate and what is
// promoted. Every move says who made it and why, and is refused for versions
// that do not exist or that nobody evaluated.
package pointer
