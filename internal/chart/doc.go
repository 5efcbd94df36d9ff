// Package chart draws curves: as text for a terminal and as an SVG for a page or
// a README. It knows lines over a number axis with ticks, a title and a legend,
// as the reward of a training needs it, and nothing else.
//
// The graph of a text is drawn by asciigraph, which depends on nothing, with the ticks
// of our scales. The SVG is written here: gonum/plot and go-analyze/charts paint one
// fixed colour scheme on a white ground, which a README in dark mode shows as a box,
// and make a small binary 8 and 2 MB larger; ours follows the reader's colour scheme.
//
// A [Plot] is plain values. Points may come in any order and are drawn by X;
// those that are not finite are left out and interrupt the line. Drawing never
// fails on what a plot holds: without points it says so.
//
// Guarantees: equal plots and sizes give equal bytes; text has at most the width asked
// for (and at least [LeastWidth]) and without colours no control character other than the
// line feed; an SVG is well-formed whatever the names hold, brings no script and fetches
// nothing.
package chart
