package upstream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

func TestAServerIsNamedWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://127.0.0.1:8000": "127.0.0.1:8000", "https://user:secret@gpu-1/vllm/?key=secret": "gpu-1/vllm", "http://[::1]:8000": "[::1]:8000", "://": "",
	} {
		require.Equal(t, want, upstream.ServerName(address))
	}
}
