package torch

import (
	"bytes"
	"context"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

//go:embed program/*.py
var programFiles embed.FS

const (
	// startLimit is how long the libraries may take to load; a slow disk needs a minute.
	startLimit = 5 * time.Minute
	// leave is how long a request may go on once its caller has left.
	leave = 5 * time.Second
	// grace is how long ranks may show no sign of life after one of them has had an
	// error: either they have the error too, or they wait for that rank in vain.
	grace = 10 * time.Second
	// socketDescriptor is the first file that a child inherits after its standard ones.
	socketDescriptor = 3
)

// process is one start of the program: one rank, or several over which models are spread.
// There is no launcher between them and this process. So the death of a rank is seen at
// its own socket, and all ranks end with this process, however it ends.
type process struct {
	generation int
	limit      time.Duration
	grace      time.Duration
	dir        string // holds the program and temporary files; the program removes it too
	ranks      []*rank
	about      About // of rank 0

	mu       sync.Mutex // one request at a time
	sequence int
	handles  int
	lost     error // why no more requests are possible
}

// start starts the program as count ranks and waits, for at most within, until all have
// loaded their libraries.
func start(o Options, count, generation int, within time.Duration) (*process, error) {
	dir, err := os.MkdirTemp("", "fulgurite-torch-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the program: %w", err)
	}
	p := &process{generation: generation, limit: o.Limit, grace: grace, dir: dir}
	if err := writeProgram(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for number := range count {
		r, err := launch(o, dir, number, count)
		if err != nil {
			p.kill()
			return nil, err
		}
		p.ranks = append(p.ranks, r)
	}
	if err := p.greet(within); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func writeProgram(dir string) error {
	names, err := fs.Glob(programFiles, "program/*.py")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "program"), 0o700)
	}
	if err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	for _, name := range names {
		text, err := programFiles.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the program: %w", err)
		}
	}
	return nil
}

// socketPair returns a pair of connected sockets that no other child inherits.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, descriptor := range pair {
		syscall.CloseOnExec(descriptor)
	}
	return os.NewFile(uintptr(pair[0]), "engine"), os.NewFile(uintptr(pair[1]), "program"), nil
}

// greet reads how the ranks describe themselves, or why one can't work.
func (p *process) greet(within time.Duration) error {
	w := &waiting{ranks: p.ranks, limit: leave} // long enough to read why other ranks can't work
	all := each(p.ranks, func(r *rank) error { return r.greet(within) }, func() { w.shorten(leave) })
	for _, err := range all.errs { // it comes before the errors of ranks that ended or waited because of it
		if u := unfit(""); errors.As(err, &u) {
			return u
		}
	}
	if all.first >= 0 {
		return p.lose(p.ranks[all.first], all.errs[all.first])
	}
	p.about = p.ranks[0].about
	p.about.Ranks = len(p.ranks)
	return nil
}

// outcomes holds the results of an operation on several ranks.
type outcomes struct {
	errs  []error // of each rank
	first int     // the rank that failed first; -1 if none did
}

// each calls do for all ranks at once; failed is called when the first of them fails.
func each(ranks []*rank, do func(*rank) error, failed func()) outcomes {
	out := outcomes{errs: make([]error, len(ranks)), first: -1}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			err := do(r)
			mu.Lock()
			defer mu.Unlock()
			if out.errs[i] = err; err != nil && out.first < 0 {
				out.first = i
				failed()
			}
		})
	}
	all.Wait()
	return out
}

// ask sends requests[i] to rank i and waits for all replies. An error that wraps
// model.ErrEngineLost ends the process. So does an error of a rank for which others wait.
// Any other error leaves the process as it is.
func (p *process) ask(ctx context.Context, requests []request) ([]reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return nil, p.lost
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.sequence++
	w := &waiting{ranks: p.ranks[:len(requests)], limit: p.limit}
	left := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		w.shorten(leave)
	})
	defer func() {
		if !stop() {
			<-left // or it would shorten the next request
		}
	}()
	if err := w.alive(); err != nil {
		return nil, p.lose(p.ranks[0], err)
	}
	replies, verb := make([]reply, len(requests)), requests[0].Verb
	all := each(w.ranks, func(r *rank) (err error) {
		q := requests[r.number]
		q.Generation, q.Sequence = p.generation, p.sequence
		replies[r.number], err = r.exchange(q, w.alive)
		if err == nil && replies[r.number].Error != "" {
			w.shorten(p.grace)
		}
		return err
	}, func() { w.shorten(0) })
	if all.first >= 0 {
		return nil, p.broken(ctx, verb, replies, all)
	}
	for _, r := range replies {
		if err := failure(verb, r); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// broken ends the process because ranks did not reply, and returns the reason.
func (p *process) broken(ctx context.Context, verb string, replies []reply, all outcomes) error {
	r, err := p.ranks[all.first], all.errs[all.first]
	for i, got := range replies {
		refusal := failure(verb, got)
		if refusal == nil || !isSilent(err) {
			continue
		}
		refusal = fmt.Errorf("rank %d, for which rank %d waited: %w", i, r.number, refusal)
		lost := p.lose(p.ranks[i], refusal)
		if errors.Is(refusal, errMemory) { // it would need as much again
			return refusal
		}
		return lost
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", verb, context.Cause(ctx), p.lose(r, fmt.Errorf("its caller left, and %v later: %w", leave, err)))
	}
	return fmt.Errorf("%s: %w", verb, p.lose(r, err))
}

// waiting sets one deadline for all ranks, up to the next sign of life of any of them:
// while one computes, the others may wait for it.
type waiting struct {
	ranks []*rank

	mu    sync.Mutex
	limit time.Duration
}

// alive records a sign of life: it moves the deadline.
func (w *waiting) alive() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for _, r := range w.ranks {
		err = errors.Join(err, r.conn.SetDeadline(time.Now().Add(w.limit)))
	}
	return err
}

// shorten lowers the limit from now on, because the caller has left or a rank can't
// continue.
func (w *waiting) shorten(limit time.Duration) {
	w.mu.Lock()
	w.limit = min(w.limit, limit)
	w.mu.Unlock()
	_ = w.alive() // a socket that is closed needs no deadline
}

// errMemory is wrapped where a request needs more memory than the device has.
var errMemory = errors.New("the device has too little memory")

// failure returns the error that a reply reports.
func failure(verb string, r reply) error {
	switch {
	case r.Error == "":
		return nil
	case r.Kind == "memory":
		return fmt.Errorf("%s: %w: %s", verb, errMemory, r.Error)
	}
	return fmt.Errorf("%s: %s", verb, r.Error)
}

// isSilent reports whether err means that a rank showed no sign of life in time.
func isSilent(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// lose ends the process because of an error of rank r. It returns the error with which
// all further requests are answered.
func (p *process) lose(r *rank, err error) error {
	p.kill()
	what := "it ended by itself"
	switch {
	case isSilent(err):
		what = fmt.Sprintf("it gave no sign of life for %v and was killed", p.limit)
	case errors.Is(err, errFrame):
		what = "it sent something that is not a reply, and was killed"
	default:
		if s := r.cmd.ProcessState.String(); s != "" {
			what = "it ended with " + s
		}
	}
	last := r.stderr.lastLines(3)
	if last == "" {
		last = "nothing"
	}
	if len(p.ranks) > 1 {
		what = fmt.Sprintf("rank %d of %d: %s", r.number, len(p.ranks), what)
	}
	p.lost = fmt.Errorf("%w: %s (%w); it wrote last: %s", model.ErrEngineLost, what, err, last)
	return p.lost
}

// kill ends all ranks, waits for their end, and removes their directory.
func (p *process) kill() {
	for _, r := range p.ranks {
		_ = r.conn.Close() // it ends by itself when it sees that
	}
	for _, r := range p.ranks {
		r.wait()
	}
	_ = os.RemoveAll(p.dir) // the program removes it too
}

// close ends the process; requests are answered with an error from then on.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: the engine is closed", model.ErrEngineLost)
		p.kill()
	}
}

// newHandle returns a new number for a model that ranks are to hold.
func (p *process) newHandle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handles++
	return p.handles
}

// isLost reports whether the process can't be asked any more.
func (p *process) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost != nil
}

// fingerprint names everything that the numbers depend on.
func (p *process) fingerprint() string {
	a := p.about
	return strings.Join([]string{
		"torch/" + strconv.Itoa(version), "torch-" + a.Versions["torch"], "transformers-" + a.Versions["transformers"], "peft-" + a.Versions["peft"],
		a.Device, strings.ReplaceAll(a.Processor, " ", "-"), a.DType, a.Attention, "threads-" + strconv.Itoa(a.Threads), "ranks-" + strconv.Itoa(len(p.ranks)),
	}, " ")
}

// These bounds are above what any frame of the program needs.
const (
	maxHeader = 1 << 20 // bytes of a header
	maxArray  = 1 << 30 // bytes of an array
)

// errFrame is wrapped when bytes are not a frame: the peer is then another program, or
// broken.
var errFrame = errors.New("bad frame")

// array is a dense array of one type: "f4", "i4" or "u1", as in NumPy, little-endian.
type array struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	data  []byte
}

// number is an element of an array.
type number interface{ float32 | int32 | byte }

func newArray[N number](name string, data []N, shape ...int) array {
	a := array{Name: name, Shape: shape}
	switch data := any(data).(type) {
	case []float32:
		a.Type = "f4"
		a.data, _ = binary.Append(nil, binary.LittleEndian, data) // a slice of numbers has a size
	case []int32:
		a.Type = "i4"
		a.data, _ = binary.Append(nil, binary.LittleEndian, data)
	case []byte:
		a.Type, a.data = "u1", data
	}
	return a
}

// floats returns the numbers of an array, which must have n of them.
func (a array) floats(n int) ([]float32, error) {
	if a.Type != "f4" || len(a.data) != 4*n {
		return nil, fmt.Errorf("%w: array %s is of type %s with %d bytes, want %d of type f4", errFrame, a.Name, a.Type, len(a.data), 4*n)
	}
	out := make([]float32, n)
	_, err := binary.Decode(a.data, binary.LittleEndian, out)
	return out, err
}

// integers returns the numbers of an array, which must have n of them.
func (a array) integers(n int) ([]int32, error) {
	if a.Type != "i4" || len(a.data) != 4*n {
		return nil, fmt.Errorf("%w: array %s is of type %s with %d bytes, want %d of type i4", errFrame, a.Name, a.Type, len(a.data), 4*n)
	}
	out := make([]int32, n)
	_, err := binary.Decode(a.data, binary.LittleEndian, out)
	return out, err
}

// request is the header of a frame to the program.
type request struct {
	Verb       string  `json:"verb"`
	Generation int     `json:"generation"`
	Sequence   int     `json:"sequence"`
	Handle     int     `json:"handle,omitempty"`
	Body       any     `json:"body,omitempty"`
	Arrays     []array `json:"arrays,omitempty"`
}

// reply is the header of a frame from the program.
type reply struct {
	Generation int             `json:"generation"`
	Sequence   int             `json:"sequence"`
	Progress   bool            `json:"progress"`
	Result     json.RawMessage `json:"result"`
	Error      string          `json:"error"`
	Kind       string          `json:"kind"` // of the error: "setup", "refused", "memory" or "fault"
	Arrays     []array         `json:"arrays"`
}

// writeFrame writes r and its arrays.
func writeFrame(w io.Writer, r request) error {
	header, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", r.Verb, err)
	}
	var frame bytes.Buffer
	frame.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(header))))
	frame.Write(header)
	for _, a := range r.Arrays {
		frame.Write(a.data)
	}
	_, err = w.Write(frame.Bytes())
	return err
}

// readFrame reads a reply and its arrays.
func readFrame(r io.Reader) (reply, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return reply{}, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHeader {
		return reply{}, fmt.Errorf("%w: a header of %d bytes", errFrame, n)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(r, header); err != nil {
		return reply{}, err
	}
	var got reply
	if err := json.Unmarshal(header, &got); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	for i := range got.Arrays {
		a := &got.Arrays[i]
		size, err := a.size()
		if err != nil {
			return reply{}, err
		}
		a.data = make([]byte, size)
		if _, err := io.ReadFull(r, a.data); err != nil {
			return reply{}, err
		}
	}
	return got, nil
}

// size returns the number of bytes of an array whose header was read.
func (a array) size() (int, error) {
	n, ok := map[string]int{"f4": 4, "i4": 4, "u1": 1}[a.Type]
	for _, d := range a.Shape {
		if d < 0 || d > maxArray {
			ok = false
			break
		}
		if n *= d; n > maxArray {
			ok = false
			break
		}
	}
	if !ok {
		return 0, fmt.Errorf("%w: array %s of type %q and shape %v", errFrame, a.Name, a.Type, a.Shape)
	}
	return n, nil
}

// tailBytes is how much of what the program writes is kept.
const tailBytes = 4096

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - tailBytes; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

// lastLines returns the last n lines that are not empty, joined by " | ".
func (t *tail) lastLines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
