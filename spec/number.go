package spec

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// outOfRange is a number, as the file writes it, that no field can hold.
type outOfRange string

// number returns a decimal number as the first of int64, uint64 and float64 that can hold
// it. How a number is written does not matter: 1e3 and 1000.0 are 1000, so that a key for
// whole numbers takes them too. A number whose float64 would be infinite, or zero where the
// number is not, is outOfRange.
func number(text string) any {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f == 0 && strings.ContainsAny(mantissa(text), "123456789") {
		return outOfRange(text)
	}
	if f == 0 {
		return int64(0)
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<64 {
		return f
	}
	// A float64 has 53 bits, so the digits themselves are read. There are few, because of
	// the bound above.
	exact, ok := new(big.Rat).SetString(strings.TrimPrefix(text, "+"))
	if !ok || !exact.IsInt() {
		return f
	}
	switch whole := exact.Num(); {
	case whole.IsInt64():
		return whole.Int64()
	case whole.IsUint64():
		return whole.Uint64()
	}
	return f
}

// mantissa returns the digits of a number without its power of ten.
func mantissa(text string) string {
	digits, _, _ := strings.Cut(strings.ToLower(text), "e")
	return digits
}
