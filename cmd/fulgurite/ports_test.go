package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADefaultPortThatMovedIsTold(t *testing.T) {
	t.Parallel()
	given := 8234
	for name, c := range map[string]struct {
		given   *int
		address string
		told    string
		fails   bool
	}{
		"as usual":            {nil, "http://127.0.0.1:8234/v1", "", false},
		"moved":               {nil, "http://127.0.0.1:9999/v1", "Port 8234 is in use: the gateway listens on 9999.\n", false},
		"given":               {&given, "127.0.0.1:8234", "", false},
		"given, and taken":    {&given, "127.0.0.1:9999", "", true},
		"any":                 {new(int), "127.0.0.1:9999", "", false},
		"one that is not run": {nil, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told bytes.Buffer
			err := ports{GatewayPort: c.given}.gateway().check(c.address, &terminal{err: &told})
			require.Equal(t, c.told, told.String())
			if c.fails {
				require.ErrorContains(t, err, "--gateway-port 8234: the port is in use")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
