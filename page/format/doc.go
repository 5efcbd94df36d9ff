// Package format formats what the page shows: numbers and times, and texts that other
// people or programs wrote. It cuts these texts to a length and makes control characters
// visible.
//
// Its functions are pure. Their results still have to be escaped for HTML, which the
// page's templates do.
package format
