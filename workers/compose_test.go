package workers_test

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/workers"
)

// service is what a test reads of a service in docker-compose.yml.
type service struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

func services(t *testing.T) map[string]service {
	t.Helper()
	text, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	var file struct {
		Services map[string]service `yaml:"services"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	return file.Services
}

// Weights of runs have no effect on a server without this.
func TestTheTemporalOfTheFileSharesQueuesFairly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
			Configs     []struct{ Source, Target string }
		} `yaml:"services"`
		Configs map[string]struct{ Content string } `yaml:"configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	temporal := file.Services["temporal"]
	require.Len(t, temporal.Configs, 1)
	require.Equal(t, temporal.Configs[0].Target, temporal.Environment["DYNAMIC_CONFIG_FILE_PATH"])
	var values map[string][]struct{ Value bool }
	require.NoError(t, yaml.Unmarshal([]byte(file.Configs[temporal.Configs[0].Source].Content), &values))
	require.Equal(t, map[string][]struct{ Value bool }{"matching.enableFairness": {{true}}}, values)
}

// ours returns the services that run this command.
func ours(t *testing.T) map[string]service {
	t.Helper()
	all := services(t)
	for name, s := range all {
		if s.Build == "" {
			delete(all, name)
		}
	}
	require.Len(t, all, 5)
	return all
}

// unflaggedVariables returns the environment variables that the command reads without a
// flag.
func unflaggedVariables() []string {
	return []string{"PGPASSWORD", trust.ServingKey, trust.FleetKey, trust.MetricsKey}
}

func TestComposeRunsCommandsThatExist(t *testing.T) {
	for name, s := range ours(t) {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, name, s.Command[0], "a service is named for its command")
			for key, value := range s.Environment {
				t.Setenv(key, value)
			}
			parsed, err := workers.Parse(s.Command, io.Discard)
			require.NoError(t, err)
			known := unflaggedVariables()
			for _, flag := range parsed.Flags() {
				known = append(known, flag.Envs...)
			}
			for key := range s.Environment {
				require.True(t, slices.Contains(known, key), "%s has no flag", key)
			}
			if name == "migrate" {
				return
			}
			require.Equal(t, []string{"CMD", "fulgurite-worker"}, s.Healthcheck.Test[:2])
			_, err = workers.Parse(s.Healthcheck.Test[2:], io.Discard)
			require.NoError(t, err)
			address := s.Environment["FULGURITE_LISTEN"] + s.Environment["FULGURITE_HEALTH_LISTEN"]
			_, port, _ := strings.Cut(address, ":")
			require.Contains(t, s.Healthcheck.Test, "http://127.0.0.1:"+port+"/healthz", "the check asks where the process listens")
		})
	}
}

func TestComposeStartsInOrder(t *testing.T) {
	t.Parallel()
	all := services(t)
	for name, s := range all {
		for other, on := range s.DependsOn {
			require.Contains(t, all, other, name)
			switch on.Condition {
			case "service_healthy":
				require.NotEmpty(t, all[other].Healthcheck.Test, "%s waits for the health of %s", name, other)
			case "service_completed_successfully":
				require.Equal(t, "migrate", other)
			default:
				t.Errorf("%s waits for %s until %q", name, other, on.Condition)
			}
		}
		if s.Build != "" {
			require.NotEmpty(t, s.DependsOn, name)
		} else {
			require.Regexp(t, `:[0-9]+(\.[0-9]+)*$`, s.Image, "%s is pinned", name)
		}
	}
}

func TestComposeHoldsNoSecret(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)(password|passwd|pwd|secret|token|key)$`)
	reference := regexp.MustCompile(`^\$\{[A-Z_]+(:\?[^}]+|:-)\}$`)
	found := 0
	for name, s := range services(t) {
		for key, value := range s.Environment {
			if secret.MatchString(key) {
				found++
				require.Regexp(t, reference, value, "%s of %s is written down", key, name)
			}
			require.NotRegexp(t, `://[^/]*:[^/]*@`, value, "%s of %s has a password in its URL", key, name)
		}
	}
	require.GreaterOrEqual(t, found, 7)
	example, err := os.ReadFile("../.env.example")
	require.NoError(t, err)
	for line := range strings.Lines(string(example)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			require.Empty(t, value, "%s has a value in the example", key)
		}
	}
}

func TestDockerReadsTheComposeFile(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
		t.Skip("skipped: docker compose is not installed")
	}
	read := exec.CommandContext(t.Context(), "docker", "compose", "-f", "../docker-compose.yml", "config", "--quiet")
	read.Env = append(os.Environ(), "POSTGRES_PASSWORD=anything", "FULGURITE_FLEET_KEY=anything")
	out, err := read.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
