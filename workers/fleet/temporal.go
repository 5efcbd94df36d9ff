package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// TemporalOptions reads how to connect to Temporal from its own variables and its
// configuration file, as the temporal CLI does. A configuration file that nobody named and
// that may not be read counts as absent: it is in the home of another user, which
// containers leave in HOME.
func TemporalOptions() (client.Options, error) {
	o, err := envconfig.LoadDefaultClientOptions()
	if errors.Is(err, fs.ErrPermission) && os.Getenv("TEMPORAL_CONFIG_FILE") == "" && os.Getenv("TEMPORAL_PROFILE") == "" {
		o, err = envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true})
	}
	if err != nil {
		return client.Options{}, fmt.Errorf("read Temporal's client configuration: %w", err)
	}
	return o, nil
}
