package trust

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// The environment variables with keys. They have no flags, because everyone on a machine can
// see flags.
const (
	// FleetKey is what the processes of a fleet present to each other.
	FleetKey = "FULGURITE_FLEET_KEY"
	// ToolsKey is what agents present to the process that serves tools.
	ToolsKey = "FULGURITE_TOOLS_KEY"
	// MetricsKey is what whoever reads metrics presents.
	MetricsKey = "FULGURITE_METRICS_KEY"
	// ServingKey is what clients present at the gateway's /v1.
	ServingKey = "FULGURITE_SERVING_KEY"
)

// minKey is the least length of a key that is read by ReadKey. A key of random letters and
// digits that is this long can't be guessed.
const minKey = 16

// ReadKey returns the key in an environment variable, or "" if the variable is empty or not
// set. White space around the key is left out, because files with keys often end in a newline.
// No error contains the key.
func ReadKey(variable string) (string, error) {
	key := strings.TrimSpace(os.Getenv(variable))
	switch {
	case key == "":
		return "", nil
	case len(key) < minKey:
		return "", fmt.Errorf("%s: the key has %d characters, which can be guessed: give at least %d, for example those that `openssl rand -hex 32` prints", variable, len(key), minKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }):
		return "", fmt.Errorf("%s: a header can't have this key: give letters, digits and signs of ASCII, without white space", variable)
	}
	return key, nil
}

// RequireKey admits requests that present the key as Authorization: Bearer KEY, and all that
// ask whether the process lives. It refuses others with status 401 and a message that names
// the variable. An empty key admits everyone.
func RequireKey(key, variable string, next http.Handler) http.Handler {
	if key == "" {
		return next
	}
	want := sha256.Sum256([]byte(key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(protocol.PresentedKey(r)))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 || r.URL.Path == health.Path {
			next.ServeHTTP(w, r)
			return
		}
		reason := "the request presents no key"
		if protocol.PresentedKey(r) != "" {
			reason = "the request presents another key"
		}
		refuse(w, fmt.Sprintf("%s: send the value that %s has where this process was started, as Authorization: Bearer KEY", reason, variable))
	})
}

// refuse answers in the form that samplers, gateways and OpenAI's API have for errors.
func refuse(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.WriteHeader(http.StatusUnauthorized)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": message, "type": "authentication_error", "code": protocol.CodeInvalidKey}}) // an error means that the client has left
}
