// Package arithmetic is the built-in family of tasks: sums, differences and products of
// two or three small integers, such as "12+7*3", with their values, and demonstrations
// that use a calculator for them.
//
// A problem has two or three operands from 0 to 19 joined by +, - and *, written without
// blanks. There are 1,200 problems with two operands and 72,000 with three.
// Multiplication binds first; + and - go from left to right.
//
// Each problem belongs to exactly one [Split], which a hash of the problem's canonical
// form decides. In this form, operands that may be exchanged are sorted, so "3+4" and
// "4+3" are in the same split. About 8 in 10 problems are in [Train], 1 in [Gate] and 1
// in [Test]. Demonstrations use problems of [Train] alone.
//
// It is not a benchmark of mathematics, and it reads no expressions outside of its own
// grammar. Guarantees: everything here is a function of its arguments. It is the same on
// every machine and in every version, because the tasks of a finished run are identified
// by their digest.
package arithmetic
