// Package numbers reads numbers as people and language models write them: with separators
// of thousands, currency and percent signs, units, as fractions, in Markdown and in LaTeX.
// Values are exact: nothing is rounded.
//
// It evaluates no expressions. A number that is a part of something else, such as the 2 of
// 6*2, of x-2, of 10:02 or of a date, is not read as if it stood alone: what can't be read
// as a whole is no number.
//
// What it reads:
//
//   - 72, -5, +5, .5, 1e3, 9,500, 9 500 and LaTeX's 9{,}500. Minus signs may be those of
//     typography, such as U+2212.
//   - 1/2, 2 1/2, ½, \frac{1}{2}, 2\frac{1}{2}.
//   - 1.2 × 10^6, 1.2 \times 10^{6}, 2 million.
//   - $29.00, -$5, 29 €, USD 29; 50 % and 50\%, whose value is 50; 72 clips, 12 cm^2, 90°.
//   - All of these in **…**, `…`, $…$, \(…\), \[…\], \text{…} and \boxed{…}.
package numbers
