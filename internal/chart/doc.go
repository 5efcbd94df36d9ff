// Package chart draws curves: as text for a terminal, and as an SVG for a page or a
// README. It draws lines over a numeric axis with ticks, a title and a legend, which is
// what the rewards of a training need, and nothing else.
//
// The graph in a text is drawn by asciigraph, which has no dependencies, with the ticks
// of our scales. The SVG is written by this package: gonum/plot and go-analyze/charts use
// one fixed colour scheme on white, which a README in dark mode shows as a box, and make
// a small binary 8 and 2 MB larger. Our SVG follows the reader's colour scheme.
//
// A [Plot] holds plain values. Points may be in any order and are drawn by X. Points that
// are not finite are left out and interrupt the line. Drawing never fails because of what
// a plot holds: without points, the drawing says so.
//
// Guarantees: equal plots and sizes give equal bytes. Text has at most the requested
// width (but at least [LeastWidth]), and without colours its only control character is
// the line feed. An SVG is well-formed whatever the names contain, has no script and
// loads nothing.
package chart
