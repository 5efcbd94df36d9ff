package forwarder_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

func TestARequestKeepsItsNameHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, faulty, says(http.StatusOK, "first"), says(http.StatusOK, "second"))
	s := open(t, newForwarder(t, g.at))
	ask(t.Context(), s, "a question")
	ask(t.Context(), s, "a question")
	var names []string
	for range 3 {
		names = append(names, within(t, g.asked).request.Header.Get(protocol.RequestNameHeader))
	}
	require.NotEmpty(t, names[0])
	require.Equal(t, names[0], names[1], "asked again")
	require.NotEqual(t, names[1], names[2], "asked anew")
}
