package gguf

import (
	"fmt"
	"strings"
)

// Type is how a tensor's numbers are stored, numbered as in files.
type Type uint32

// The types that are read. Those with an underscore store blocks of numbers with a
// common scale.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// form holds the size of a type's blocks and the function that decodes them.
type form struct {
	numbers, bytes int
	// decode decodes whole blocks; dst has room for exactly their numbers.
	decode func(dst []float32, src []byte)
}

func (t Type) form() (form, bool) {
	switch t {
	case F32:
		return form{1, 4, decodeF32}, true
	case F16:
		return form{1, 2, decodeF16}, true
	case BF16:
		return form{1, 2, decodeBF16}, true
	case Q4_0:
		return form{32, 18, blocks(32, 18, decodeQ4_0)}, true
	case Q4_1:
		return form{32, 20, blocks(32, 20, decodeQ4_1)}, true
	case Q5_0:
		return form{32, 22, blocks(32, 22, decodeQ5_0)}, true
	case Q5_1:
		return form{32, 24, blocks(32, 24, decodeQ5_1)}, true
	case Q8_0:
		return form{32, 34, blocks(32, 34, decodeQ8_0)}, true
	case Q4_K:
		return form{256, 144, blocks(256, 144, decodeQ4_K)}, true
	case Q5_K:
		return form{256, 176, blocks(256, 176, decodeQ5_K)}, true
	case Q6_K:
		return form{256, 210, blocks(256, 210, decodeQ6_K)}, true
	}
	return form{}, false
}

// Quantized reports whether t stores numbers in blocks with a common scale.
func (t Type) Quantized() bool { return t != F32 && t != F16 && t != BF16 }

// Supported returns the types that can be read.
func Supported() []Type {
	return []Type{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K}
}

// String returns the type's name in llama.cpp.
func (t Type) String() string {
	if name, ok := typeNames()[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// ParseType finds a type by its name, such as "q8_0".
func ParseType(name string) (Type, error) {
	for _, t := range Supported() {
		if strings.EqualFold(t.String(), name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%q is not one of %s", name, supportedNames())
}

func supportedNames() string {
	var names []string
	for _, t := range Supported() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// typeNames also has the types that are refused, for the error.
func typeNames() map[Type]string {
	names := map[Type]string{
		F32: "F32", F16: "F16", Q4_0: "Q4_0", Q4_1: "Q4_1", Q5_0: "Q5_0", Q5_1: "Q5_1", Q8_0: "Q8_0",
		Q4_K: "Q4_K", Q5_K: "Q5_K", Q6_K: "Q6_K", BF16: "BF16",
		9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
	}
	others := strings.Fields("IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M")
	for i, name := range others {
		names[Type(16+i)] = name
	}
	return names
}

// row returns how many bytes width numbers take. ok is false if they are not whole
// blocks.
func (f form) row(width int64) (bytes int64, ok bool) {
	n := int64(f.numbers)
	return width / n * int64(f.bytes), width%n == 0
}
