package kvcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

func shape() kvcache.Shape { return kvcache.Shape{Layers: 2, Heads: 3, HeadSize: 16} }

func TestFreePagesAreLentFirstAndGivenBack(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	held := p.Reserve(nil, 10*kvcache.PagePositions)
	require.Len(t, held, 10)
	freed := held[2:]
	p.Release(freed)
	held = p.Reserve(held[:2:2], 5*kvcache.PagePositions)
	require.Len(t, held, 5)
	require.Equal(t, 5, p.Free())
	require.Subset(t, freed, held[2:], "pages that are free are lent first")
	p.Trim(3 * p.Numbers())
	require.Equal(t, 3, p.Free())
	p.Trim(0)
	require.Zero(t, p.Free())
	require.Len(t, held[4].Data(), p.Numbers(), "what is lent stays")
}

// Each number of a page belongs to one layer, head and kind.
func TestKeysAndValuesDivideAPage(t *testing.T) {
	t.Parallel()
	s := shape()
	page := make([]float32, s.Numbers())
	for layer := range s.Layers {
		for head := range s.Heads {
			for _, part := range [][]float32{s.Keys(page, layer, head), s.Values(page, layer, head)} {
				require.Len(t, part, s.HeadSize*kvcache.PagePositions)
				for i := range part {
					part[i]++
				}
			}
		}
	}
	for _, x := range page {
		require.EqualValues(t, 1, x)
	}
}

func TestFullPagesAreSharedAndTheLastIsCopied(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	first := p.Reserve(nil, 80)
	for i, page := range first {
		page.Data()[7] = float32(i + 1)
	}
	second := p.Share(first, 70)
	require.Len(t, second, 3)
	require.Same(t, first[1], second[1])
	require.NotSame(t, first[2], second[2])
	require.EqualValues(t, 3, second[2].Data()[7])
	require.Len(t, p.Share(first, 64), 2)

	p.Release(first)
	require.Equal(t, 1, p.Free(), "others hold the full pages still")
	require.EqualValues(t, 2, second[1].Data()[7])
}
