// Package figure draws curves as SVG. Their colours are classes of the page's style.
//
// It draws the data that it gets and reads nothing. It escapes text, so that a name which
// someone else chose can't become markup.
package figure
