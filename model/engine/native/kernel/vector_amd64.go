//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

func vectorSets() []*Set {
	var sets []*Set
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, avx512Set())
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, avx2Set())
	}
	return sets
}

func avx512Set() *Set {
	return &Set{
		name: "avx512", arithmetic: fused,
		wide:            [4]tile{avx512Tile8x32, avx512Tile4x32, avx512Tile2x32, avx512Tile1x32},
		wideBF16:        [4]tileBF16{avx512BF16Tile8x32, avx512BF16Tile4x32, avx512BF16Tile2x32, avx512BF16Tile1x32},
		wideQ8:          [4]tileQ8{avx512Q8Tile8x32, avx512Q8Tile4x32, avx512Q8Tile2x32, avx512Q8Tile1x32},
		narrow:          [4]tile{avx512Tile8x16, avx512Tile4x16, avx512Tile2x16, avx512Tile1x16},
		narrowBF16:      [4]tileBF16{avx512BF16Tile8x16, avx512BF16Tile4x16, avx512BF16Tile2x16, avx512BF16Tile1x16},
		narrowQ8:        [4]tileQ8{avx512Q8Tile8x16, avx512Q8Tile4x16, avx512Q8Tile2x16, avx512Q8Tile1x16},
		widenBF16:       avx512WidenBF16,
		widenQ8:         avx512WidenQ8,
		transpose:       avx2Transpose,
		softmax:         avx512Softmax,
		logSumExp:       avx512LogSumExp,
		logitsGradient:  avx512LogitsGradient,
		softmaxBackward: avx512SoftmaxBackward,
		norm:            avx512Norm,
		normBackward:    avx512NormBackward,
		swiGLU:          avx512SwiGLU,
		swiGLUBackward:  avx512SwiGLUBackward,
		rotate:          avx512Rotate,
		add:             avx512Add,
		sumSquares:      avx512SumSquares,
		adamW:           avx512AdamW,
	}
}

func avx2Set() *Set {
	return &Set{
		name: "avx2", arithmetic: fused,
		narrow:          [4]tile{nil, avx2Tile4x16, avx2Tile2x16, avx2Tile1x16},
		narrowBF16:      [4]tileBF16{nil, avx2BF16Tile4x16, avx2BF16Tile2x16, avx2BF16Tile1x16},
		narrowQ8:        [4]tileQ8{nil, avx2Q8Tile4x16, avx2Q8Tile2x16, avx2Q8Tile1x16},
		widenBF16:       avx2WidenBF16,
		widenQ8:         avx2WidenQ8,
		transpose:       avx2Transpose,
		softmax:         avx2Softmax,
		logSumExp:       avx2LogSumExp,
		logitsGradient:  avx2LogitsGradient,
		softmaxBackward: avx2SoftmaxBackward,
		norm:            avx2Norm,
		normBackward:    avx2NormBackward,
		swiGLU:          avx2SwiGLU,
		swiGLUBackward:  avx2SwiGLUBackward,
		rotate:          avx2Rotate,
		add:             avx2Add,
		sumSquares:      avx2SumSquares,
		adamW:           avx2AdamW,
	}
}
