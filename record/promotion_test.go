package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

func TestARollbackLeadsToTheVersionBefore(t *testing.T) {
	t.Parallel()
	gate, rollback, pin, unpin := record.SourceGate, record.SourceRollback, record.SourcePin, record.SourceUnpin
	type move struct {
		source  record.Source
		version int
	}
	for name, c := range map[string]struct {
		moves []move
		want  int // -1 for none
	}{
		"nothing promoted":              {nil, -1},
		"only the first":                {[]move{{gate, 0}}, -1},
		"the one before":                {[]move{{gate, 0}, {gate, 4}, {gate, 8}}, 4},
		"and the one before that":       {[]move{{gate, 0}, {gate, 4}, {gate, 8}, {rollback, 4}}, 0},
		"back to the first":             {[]move{{gate, 0}, {gate, 4}, {gate, 8}, {rollback, 4}, {rollback, 0}}, -1},
		"a new one after a rollback":    {[]move{{gate, 0}, {gate, 4}, {gate, 8}, {rollback, 4}, {gate, 12}}, 4},
		"over several":                  {[]move{{gate, 0}, {gate, 4}, {gate, 8}, {rollback, 0}, {gate, 12}}, 0},
		"to one never promoted":         {[]move{{gate, 0}, {gate, 4}, {rollback, 3}}, 4},
		"a pin where it stands":         {[]move{{gate, 0}, {gate, 4}, {pin, 4}, {unpin, 4}}, 0},
		"a pin elsewhere":               {[]move{{gate, 0}, {gate, 4}, {pin, 2}, {unpin, 2}}, 4},
		"records before there were any": {[]move{{"", 0}, {"", 4}}, 0},
	} {
		var history []record.Promotion
		for _, m := range c.moves {
			history = append(history, record.Promotion{Version: m.version, Source: m.source})
		}
		got, ok := record.Before(history)
		require.Equal(t, c.want >= 0, ok, name)
		if ok {
			require.Equal(t, c.want, got, name)
		}
	}
}
