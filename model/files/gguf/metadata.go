package gguf

import (
	"fmt"
	"math"
)

// Pair is a key with its value. A value that was read is a string, bool, int64, uint64,
// float32, float64, or a list of strings, bools, int64 or float64; smaller types are
// widened. A value to write is a string, bool, uint32, float32, []string, []int32 or
// []float32.
type Pair struct {
	Key   string
	Value any
}

// Metadata holds the pairs of a file, in their order.
type Metadata []Pair

// value returns the value of a key, nil if there is none.
func (m Metadata) value(key string) any {
	for _, p := range m {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// Has reports whether there is such a key.
func (m Metadata) Has(key string) bool { return m.value(key) != nil }

// String returns the text of a key, "" if there is none.
func (m Metadata) String(key string) (string, error) {
	s, ok := m.value(key).(string)
	if !ok && m.Has(key) {
		return "", m.mistyped(key, "a string")
	}
	return s, nil
}

// Bool returns the truth value of a key, false if there is none.
func (m Metadata) Bool(key string) (bool, error) {
	b, ok := m.value(key).(bool)
	if !ok && m.Has(key) {
		return false, m.mistyped(key, "a truth value")
	}
	return b, nil
}

// Int returns the whole number of a key, otherwise if there is none.
func (m Metadata) Int(key string, otherwise int) (int, error) {
	var n int64
	switch v := m.value(key).(type) {
	case nil:
		return otherwise, nil
	case int64:
		n = v
	case uint64:
		if v > math.MaxInt32 {
			return 0, fmt.Errorf("%w: %s is %d", ErrFormat, key, v)
		}
		n = int64(v)
	default:
		return 0, m.mistyped(key, "a whole number")
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %s is %d", ErrFormat, key, n)
	}
	return int(n), nil
}

// Float returns the number of a key, and otherwise if the key is absent. A number of 32
// bits becomes the shortest decimal that rounds to it: a publisher's 1e-5 does not become
// 9.999999747378752e-06.
func (m Metadata) Float(key string, otherwise float64) (float64, error) {
	x := otherwise
	switch v := m.value(key).(type) {
	case nil:
	case float32:
		x = shortest(v)
	case float64:
		x = v
	default:
		return 0, m.mistyped(key, "a number")
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%w: %s is %v", ErrFormat, key, x)
	}
	return x, nil
}

// Strings returns the texts of a key, nil if there is none.
func (m Metadata) Strings(key string) ([]string, error) {
	s, ok := m.value(key).([]string)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of strings")
	}
	return s, nil
}

// Ints returns the whole numbers of a key, nil if there is none.
func (m Metadata) Ints(key string) ([]int64, error) {
	list, ok := m.value(key).([]int64)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of whole numbers")
	}
	return list, nil
}

// Floats returns the numbers of a key, nil if there is none.
func (m Metadata) Floats(key string) ([]float64, error) {
	list, ok := m.value(key).([]float64)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of numbers")
	}
	return list, nil
}

func (m Metadata) mistyped(key, want string) error {
	return fmt.Errorf("%w: %s is %T, want %s", ErrFormat, key, m.value(key), want)
}
