package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrUnavailable is wrapped when this machine can't isolate a program. The program has
// not been started.
var ErrUnavailable = errors.New("this machine can't isolate a program")

// Policy says what a program in a sandbox sees and reaches. All paths are absolute.
type Policy struct {
	// Home is the directory that the program may write. TMPDIR is usually below it.
	Home string `json:"home"`
	// Directory is the working directory. It can be read.
	Directory string `json:"directory"`
	// Writable are further paths that the program may write. They must exist.
	Writable []string `json:"writable,omitempty"`
	// Hidden are files that look empty and directories without entries. A path that does
	// not exist is ignored. Home, Directory and Writable stay visible below a hidden path.
	Hidden []string `json:"hidden,omitempty"`
	// Routes are the only addresses that the program can reach.
	Routes []Route `json:"routes,omitempty"`
	Limits Limits  `json:"limits"`
	// Container puts the program into a container of podman. Without it, the program sees the
	// files of the machine.
	Container *Container `json:"container,omitempty"`
}

// Limits bound what a program and its descendants take. Zero is the default.
type Limits struct {
	// Processes bounds processes and their threads at one time.
	Processes int `json:"processes,omitempty"`
	// CPU bounds the processor time of all processes together. It has no default.
	CPU time.Duration `json:"cpu,omitempty"`
	// FileBytes bounds the size of each file that is written.
	FileBytes int64 `json:"file_bytes,omitempty"`
}

const (
	// DefaultProcesses is enough for a browser, and few enough for a laptop.
	DefaultProcesses = 512
	// DefaultFileBytes is the default of Limits.FileBytes.
	DefaultFileBytes = 1 << 30
	// openFiles is how many files each process may have open.
	openFiles = 4096
)

// MaxProcesses returns the limit of processes and threads, which has a default.
func (l Limits) MaxProcesses() int {
	if l.Processes == 0 {
		return DefaultProcesses
	}
	return l.Processes
}

func (l Limits) fileBytes() int64 {
	if l.FileBytes == 0 {
		return DefaultFileBytes
	}
	return l.FileBytes
}

// Route is a host and a port that a program can reach. The host is a name, "localhost", or
// an IPv4 address.
type Route struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	// At is the host of the machine's network to which connections go; empty means Host.
	At string `json:"at,omitempty"`
}

// target returns where connections of the route go, as host:port.
func (r Route) target() string { return net.JoinHostPort(cmp.Or(r.At, r.Host), strconv.Itoa(r.Port)) }

// String returns host:port.
func (r Route) String() string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }

// ParseRoute reads "host:port".
func ParseRoute(text string) (Route, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Route{}, fmt.Errorf("%q is not HOST:PORT", text)
	}
	return newRoute(text, host, port)
}

// RouteOf returns the route to a URL's host. Without a port, it is the scheme's.
func RouteOf(address string) (Route, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Route{}, errors.New("it is not a URL")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return newRoute(u.Host, u.Hostname(), port)
}

func newRoute(text, host, port string) (Route, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Route{}, fmt.Errorf("%q has no port from 1 to 65535", text)
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n#/@*") {
		return Route{}, fmt.Errorf("%q names no host", text)
	}
	if ip, err := netip.ParseAddr(host); err == nil && (!ip.Is4() || ip.IsUnspecified() || ip.IsMulticast()) {
		return Route{}, fmt.Errorf("%q has no IPv4 address of a host: give a name or an IPv4 address", text)
	}
	return Route{Host: strings.ToLower(host), Port: int(n)}, nil
}

// localName is the name of the loopback interface.
const localName = "localhost"

// addresses returns the address at which the program finds each host of the routes. Names
// get addresses of the loopback network, which are in the program's /etc/hosts.
func addresses(routes []Route) map[string]netip.Addr {
	out := map[string]netip.Addr{localName: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	next := 1
	for _, r := range routes {
		if _, ok := out[r.Host]; ok {
			continue
		}
		ip, err := netip.ParseAddr(r.Host)
		if err != nil {
			ip = netip.AddrFrom4([4]byte{127, 0, byte(64 + next>>8), byte(next)})
			next++
		}
		out[r.Host] = ip
	}
	return out
}

// distinct returns the routes without those whose address and port another one has.
func distinct(routes []Route) []Route {
	at := addresses(routes)
	seen := map[netip.AddrPort]bool{}
	var out []Route
	for _, r := range routes {
		if address := netip.AddrPortFrom(at[r.Host], uint16(r.Port)); !seen[address] { //nolint:gosec // a port
			seen[address] = true
			out = append(out, r)
		}
	}
	return out
}

// hosts returns the program's /etc/hosts.
func hosts(routes []Route, machine string) string {
	at := addresses(routes)
	text := strings.Builder{}
	text.WriteString("127.0.0.1 localhost\n")
	if machine != "" && machine != localName && !at[machine].IsValid() {
		fmt.Fprintf(&text, "127.0.0.1 %s\n", machine)
	}
	seen := []string{localName}
	for _, r := range routes {
		if _, err := netip.ParseAddr(r.Host); err != nil && !slices.Contains(seen, r.Host) {
			seen = append(seen, r.Host)
			fmt.Fprintf(&text, "%s %s\n", at[r.Host], r.Host)
		}
	}
	return text.String()
}

// Secrets returns the usual places of keys and passwords that exist: those of users whose
// homes are given, those that variables of this process name, and those of the machine.
func Secrets(homes ...string) []string {
	var out []string
	add := func(path string) {
		if _, err := os.Lstat(path); err == nil && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	for _, name := range []string{
		"AWS_SHARED_CREDENTIALS_FILE", "FULGURITE_PAGE_TLS_KEY", "FULGURITE_TLS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH", "KUBECONFIG", "NETRC",
		"PGPASSFILE", "TEMPORAL_CONFIG_FILE", "TEMPORAL_TLS_CLIENT_KEY_PATH",
	} {
		if path := os.Getenv(name); filepath.IsAbs(path) {
			add(path)
		}
	}
	for _, home := range homes {
		if !filepath.IsAbs(home) {
			continue
		}
		for _, name := range []string{
			".1password", ".aws", ".azure", ".bash_history", ".cargo/credentials", ".cargo/credentials.toml", ".cache/huggingface/token",
			".config/gcloud", ".config/gh", ".config/hub", ".config/op", ".config/rclone", ".config/temporalio", ".docker", ".git-credentials",
			".config/git/credentials", ".gnupg", ".huggingface", ".kube", ".my.cnf", ".netrc", ".npmrc", ".password-store", ".pgpass", ".pypirc",
			".python_history", ".ssh", ".terraform.d", ".vault-token", ".wandb", ".zsh_history", "_netrc",
		} {
			add(filepath.Join(home, name))
		}
	}
	for _, path := range []string{"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private", "/etc/krb5.keytab", "/var/run/secrets", "/run/secrets"} {
		add(path)
	}
	return out
}

// command is the hidden subcommand under which an executable is the first process of a
// sandbox: "fulgurite-sandbox agent-sandbox policy program arguments…".
const command = "agent-sandbox"

// controlFD is the socket over which the first process sends its messages.
const controlFD = 3

// message is what the first process of a sandbox says, one a packet: first that it is
// ready, with the listeners of its routes, or why not; then that the program runs, or why
// not; then how the program ended. The program itself can't send messages, because it does
// not inherit the socket.
type message struct {
	// Unavailable says why the machine can't isolate, Error why the program can't be
	// started.
	Unavailable string `json:"unavailable,omitempty"`
	Error       string `json:"error,omitempty"`
	Ready       bool   `json:"ready,omitempty"`
	Started     bool   `json:"started,omitempty"`
	Ended       bool   `json:"ended,omitempty"`
	Code        int    `json:"code,omitempty"`
	Signal      int    `json:"signal,omitempty"`
}

// messageBytes bounds a message.
const messageBytes = 16 << 10

// emptied returns the directories that are private and empty in a sandbox: others put
// there what may be secret, and sockets.
func emptied() []string { return []string{"/tmp", "/var/tmp", "/run", "/var/run"} }

// Unfit returns why a program would not find what it needs in a sandbox, or "". It starts in a
// directory, and hidden lists absolute paths that a policy hides. What lies below a directory
// that is empty in a sandbox is unfit, since only the working directory and the named files are
// shown there, and not what they use.
func Unfit(directory string, args, hidden []string) string {
	program := args[0]
	if path, err := exec.LookPath(program); err == nil {
		program = path
	}
	if !filepath.IsAbs(program) {
		program = filepath.Join(directory, program)
	}
	for _, one := range []struct{ what, path string }{{"agent.directory", directory}, {"its program", program}} {
		for _, path := range []string{one.path, resolved(one.path)} {
			for _, empty := range emptied() {
				if path == empty || strings.HasPrefix(path, empty+"/") {
					return fmt.Sprintf("%s, %s, lies below %s, which is empty in a sandbox", one.what, path, empty)
				}
			}
		}
	}
	for _, path := range hidden {
		if resolved(path) == resolved(directory) {
			return fmt.Sprintf("%s, which is to be hidden from an isolated agent, is agent.directory: put the store into a directory of its own", path)
		}
	}
	return ""
}

// resolved returns a path without symbolic links, or as it is if it can't be followed.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
