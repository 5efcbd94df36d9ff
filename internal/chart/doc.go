// Package chart draws curves: as text for a terminal and as an SVG for a page or
// a README. It knows lines over a number axis with ticks, a title and a legend,
// which is what the reward of a training needs, and nothing else; it is no
// plotting library.
//
// A [Plot] is plain values. Points may come in any order and are drawn by X;
// those that are not finite are left out and interrupt the line. Drawing never
// fails on what a plot holds: without points it says so.
//
// You may rely on this: equal plots and sizes give equal bytes; text has at most
// the width asked for (and at least [LeastWidth]) and without colours no control
// character other than the line feed; an SVG is well-formed whatever the names
// hold, brings no script and fetches nothing.
package chart
