//go:build !purego

package kernel

// vectorSets does not check the processor: every arm64 processor has NEON.
func vectorSets() []*Set { return []*Set{neonSet()} }

func neonSet() *Set {
	return &Set{
		name: "neon", arithmetic: fused,
		narrow:          [4]tile{nil, neonTile4x16, neonTile2x16, neonTile1x16},
		narrowBF16:      [4]tileBF16{nil, neonBF16Tile4x16, neonBF16Tile2x16, neonBF16Tile1x16},
		narrowQ8:        [4]tileQ8{nil, neonQ8Tile4x16, neonQ8Tile2x16, neonQ8Tile1x16},
		widenBF16:       neonWidenBF16,
		widenQ8:         neonWidenQ8,
		softmax:         neonSoftmax,
		logSumExp:       neonLogSumExp,
		logitsGradient:  neonLogitsGradient,
		softmaxBackward: neonSoftmaxBackward,
		norm:            neonNorm,
		normBackward:    neonNormBackward,
		swiGLU:          neonSwiGLU,
		swiGLUBackward:  neonSwiGLUBackward,
		rotate:          neonRotate,
		add:             neonAdd,
		sumSquares:      neonSumSquares,
		adamW:           neonAdamW,
	}
}
