package main

import (
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// continued counts the calls whose requests have something in them that the model
// said, and of these the ones whose prompt begins with the very tokens of a call
// before.
func (a attempted) continued() (all, exact int) {
	for _, c := range a.calls {
		r, err := wire.Decode(wire.API(apiOf(c)), c.Request)
		if err != nil {
			continue // it was answered, so it was read
		}
		said := slices.ContainsFunc(r.Dialog, func(m dialog.Message) bool { return m.Role == dialog.Assistant })
		if !said && r.Previous == "" {
			continue
		}
		all++
		if c.Parent >= 0 && !c.Drift {
			exact++
		}
	}
	return all, exact
}
