package serve

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

func TestADefaultPortThatMovedIsReported(t *testing.T) {
	t.Parallel()
	given := 8234
	for name, c := range map[string]struct {
		given   *int
		address string
		printed string
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
			var printed bytes.Buffer
			err := Ports{GatewayPort: c.given}.gateway().check(c.address, &terminal.Terminal{Err: &printed})
			require.Equal(t, c.printed, printed.String())
			if c.fails {
				require.ErrorContains(t, err, "--gateway-port 8234: the port is in use")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
