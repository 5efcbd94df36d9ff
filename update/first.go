package update

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// FirstPolicy makes version 0 of a policy: the base model, with a warm start on
// demonstrations if the spec has one. A warm start that was cut off continues from its
// last saved update, with the same result to the bit.
func (m *Maker) FirstPolicy(ctx context.Context, t Target, run Run, codec dialog.Codec) (v model.Version, err error) {
	m.begin()
	s := run.Spec
	begin := func(ctx context.Context) (learner, error) {
		began := time.Now()
		defer func() { m.spent.Load += time.Since(began) }()
		if s.Model.LoRA != nil {
			start, err := m.adapt(ctx, t.ID, s, codec)
			if err != nil {
				return learner{}, fmt.Errorf("base of version %s: %w", t.ID, err)
			}
			return m.use(run, t.ID, start, "")
		}
		start, err := base(s, codec)
		if err != nil {
			return learner{}, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		return m.use(run, t.ID, start, "")
	}
	var l learner
	metrics := map[string]float64{}
	if s.Model.WarmStart == nil {
		l, err = begin(ctx)
	} else {
		l, metrics, err = m.warmStart(ctx, t, run, codec, begin)
	}
	if err != nil {
		return v, err
	}
	// The reinforcement learning begins with fresh moments.
	start, err := l.checkpoint(ctx)
	if err != nil {
		return v, fmt.Errorf("version %s: %w", t.ID, err)
	}
	defer start.Release()
	start = start.WithoutMoments()
	canary, err := m.canary(ctx, t, run.Engine, l.policy, start, canaryOf(run.Spec, model.Batch{}))
	if err != nil {
		return v, err
	}
	v, made, err := m.commit(ctx, t, run.Engine, outcome{state: start, manifest: model.Manifest{Codec: s.Model.Codec, Metrics: metrics}, canary: canary})
	if err != nil {
		return v, err
	}
	if s.Model.WarmStart == nil {
		m.manifest = made
	} else {
		m.drop() // its moments do not belong to the version
	}
	return v, nil
}

// base returns the model that the spec starts from.
func base(s spec.Spec, codec dialog.Codec) (model.Checkpoint, error) {
	if s.Model.Base == spec.BaseTiny {
		return tiny(s, codec), nil
	}
	if stored, err := openFiles(s); stored != nil || err != nil {
		if err == nil {
			err = checkVocabulary(stored.Architecture, codec)
		}
		if err != nil {
			return model.Checkpoint{}, err
		}
		return model.Checkpoint{Architecture: WithCodec(stored.Architecture, codec), Files: &model.Files{Weights: stored.Files}}, nil
	}
	a, w, err := hf.ReadDirectory(s.Model.Base)
	if err == nil {
		err = checkVocabulary(a, codec)
	}
	return model.Checkpoint{Architecture: WithCodec(a, codec), Weights: w}, err
}

// openFiles opens the files of a model that only engine torch computes. It returns nil
// unless the spec's engine is torch.
func openFiles(s spec.Spec) (*hf.Files, error) {
	if s.Model.Engine != spec.EngineTorch {
		return nil, nil
	}
	return hf.OpenFiles(s.Model.Base)
}

// adaptFiles stores the files of a model that only engine torch computes, as the base
// that all versions of a run share.
func (m *Maker) adaptFiles(ctx context.Context, id model.VersionID, s spec.Spec, l model.LoRA, stored *hf.Files, codec dialog.Codec) (model.Checkpoint, error) {
	err := checkVocabulary(stored.Architecture, codec)
	if err == nil {
		err = l.CheckFor(stored.Architecture)
	}
	if err != nil {
		return model.Checkpoint{}, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
	}
	a := WithCodec(stored.Architecture, codec)
	base, err := checkpoint.SaveBaseFiles(ctx, m.noted(id), a, stored.Files)
	if err != nil {
		return model.Checkpoint{}, err
	}
	return model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Seed: s.Seed}, nil
}

func tiny(s spec.Spec, codec dialog.Codec) model.Checkpoint {
	a := model.Tiny(codec.VocabSize())
	a.MaxPositions = cmp.Or(s.Model.Context, a.MaxPositions)
	return model.Checkpoint{Architecture: a, Weights: a.Init(s.Seed)}
}

func checkVocabulary(a model.Architecture, codec dialog.Codec) error {
	if a.VocabSize < codec.VocabSize() {
		return fmt.Errorf("vocabulary of %d tokens, but codec %s has %d", a.VocabSize, codec.Name(), codec.VocabSize())
	}
	return nil
}

// adapt stores the model that the spec starts from as the base that all versions of a run
// share, one tensor at a time. It returns the model with the adapter that the spec names
// or, if it names none, with a new one, which changes nothing yet.
func (m *Maker) adapt(ctx context.Context, id model.VersionID, s spec.Spec, codec dialog.Codec) (start model.Checkpoint, err error) {
	if s, err = WithAdapter(s); err != nil { // its file may have changed since the run began
		return start, err
	}
	tokens, err := TrainedTokens(s.Model, codec)
	if err != nil {
		return start, err
	}
	l := AdapterOf(*s.Model.LoRA, tokens)
	var tensor func(name string) (model.Tensor, error)
	if s.Model.Base == spec.BaseTiny {
		start = tiny(s, codec)
		tensor = start.Weights.Tensor
	} else {
		files, err := openFiles(s)
		if err != nil {
			return start, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		if files != nil {
			return m.adaptFiles(ctx, id, s, l, files, codec)
		}
		stored, err := hf.OpenDirectory(s.Model.Base)
		if err == nil {
			defer func() { _ = stored.Close() }() // nothing was written
			start.Architecture, tensor = WithCodec(stored.Architecture, codec), stored.Tensor
			err = checkVocabulary(stored.Architecture, codec)
		}
		if err != nil {
			return start, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
	}
	if err := l.Precision().Check(start.Architecture); err != nil {
		return start, Invalid(fmt.Errorf("model.lora.base_precision: %w", err))
	}
	if err := l.CheckTokens(start.Architecture); err != nil {
		return start, Invalid(fmt.Errorf("model.lora.trainable_tokens: %w", err))
	}
	base, err := checkpoint.SaveBase(ctx, m.noted(id), start.Architecture, l.Precision(), tensor)
	if err != nil {
		return start, err
	}
	start = model.Checkpoint{Architecture: start.Architecture, Adapter: &model.Adapter{LoRA: l, Base: base}}
	if s.Model.LoRA.Adapter != "" {
		start.Weights, err = ReadAdapter(s.Model, base)
	} else {
		start.Weights, err = start.Adapter.Init(start.Architecture, s.Seed)
	}
	return start, err
}

// FirstCritic makes version 0 of a policy's critic: version 0 of the policy with a value
// head.
func (m *Maker) FirstCritic(ctx context.Context, t Target, policy string, run Run) (model.Version, error) {
	m.begin()
	v, err := m.Versions.Version(ctx, model.VersionID{Run: t.ID.Run, Policy: policy})
	if err != nil {
		return v, fmt.Errorf("read the policy of version %s: %w", t.ID, err)
	}
	start, err := m.loadWeights(ctx, v)
	if err != nil {
		return v, fmt.Errorf("load the policy of version %s: %w", t.ID, unreadable(err, t.ID))
	}
	if start, err = model.CriticOf(start); err != nil {
		return v, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	v, _, err = m.commit(ctx, t, run.Engine, outcome{state: start, manifest: model.Manifest{Codec: run.Spec.Model.Codec}})
	return v, err
}

// warmStart has what the updates on demonstrations need.
type warmStart struct {
	spec           spec.Spec
	codec          dialog.Codec
	demonstrations tasks.Demonstrations
	work           *atomic.Uint64
}

// warmStart trains the learner that begin returns on the demonstrations. It continues
// from the point where an earlier executor was cut off.
func (m *Maker) warmStart(ctx context.Context, t Target, run Run, codec dialog.Codec, begin func(context.Context) (learner, error)) (learner, map[string]float64, error) {
	ws := *run.Spec.Model.WarmStart
	demonstrations, err := tasks.OpenDemonstrations(ws.Demonstrations, run.Spec.Seed, ws.Updates)
	if err != nil {
		return learner{}, nil, Invalid(fmt.Errorf("warm start of run %s: %w", run.Name, err))
	}
	content, err := contentOf(ws.Demonstrations)
	if err != nil {
		return learner{}, nil, fmt.Errorf("warm start of run %s: %w", run.Name, err)
	}
	key, err := basis(struct {
		Engine, Fingerprint, Spec, Demonstrations string
	}{run.Engine.Name(), run.Engine.Fingerprint(), run.SpecDigest, content})
	if err != nil {
		return learner{}, nil, err
	}
	w := warmStart{run.Spec, codec, demonstrations, &m.work}
	l, done, err := m.resumeUpdates(ctx, updatePlan{
		Target: t, run: run, codec: codec.Name(), basis: key, updates: ws.Updates, begin: begin, update: w.update,
	})
	if errors.Is(err, model.ErrDiverged) {
		err = Final(fmt.Errorf("%w: lower model.warm_start.learning_rate and start another run", err))
	}
	if err != nil {
		return learner{}, nil, fmt.Errorf("warm start of run %s: %w", run.Name, err)
	}
	return l, map[string]float64{"warm_start/loss": done.last[warmLoss], "warm_start/updates": float64(ws.Updates)}, nil
}

const warmLoss = "warm_start/loss"

// contentOf returns the digest of the file that a source of demonstrations names, or ""
// if it names none. Saved updates on another file are not continued.
func contentOf(source string) (string, error) {
	s, err := spec.ParseSource(source)
	if err != nil || s.Path == "" {
		return "", err
	}
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return "", fmt.Errorf("read demonstrations: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// update makes update u by cross-entropy on the trained tokens of its dialogs. Its
// loss is in nats per token.
func (w warmStart) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	ws := *w.spec.Model.WarmStart
	dialogs := w.demonstrations.Batch(u, ws.Batch)
	rows := make([]model.Row, len(dialogs))
	trained := make([][]bool, len(dialogs))
	total := 0
	for i, d := range dialogs {
		var err error
		if rows[i].Tokens, trained[i], err = w.codec.Demonstration(d); err != nil {
			return nil, Invalid(fmt.Errorf("demonstration %d: %w", i, err))
		}
		rows[i].Needed = trained[i][1:]
		for _, t := range rows[i].Needed {
			if t {
				total++
			}
		}
	}
	losses := make([]float64, len(rows))
	_, err := l.policy.Update(ctx, rows, func(i int, logprobs, _ []float32, gradient, _ []float32) {
		tokens := newTokens(logprobs)
		for j := range logprobs {
			if trained[i][j+1] {
				tokens.Weight[j] = 1 / float64(total)
			}
		}
		losses[i] = credit.Objective{Surrogate: credit.CrossEntropy{}}.Evaluate(tokens).Loss
		narrow(gradient, tokens.Gradient)
		w.work.Add(1)
	}, warmAdamW(ws, w.spec.Training.Optimizer, u, ws.Updates))
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return map[string]float64{warmLoss: sum}, nil
}

// TrainedTokens returns the tokens whose rows model.lora.trainable_tokens has trained, in
// the order of the spec. codec is the codec of the run. Errors are InvalidErrors.
func TrainedTokens(m spec.Model, codec dialog.Codec) ([]int32, error) {
	names := m.LoRA.TrainableTokens
	if slices.Equal(names, []string{spec.TokensAuto}) {
		marks, err := findTwins(m.Base, codec)
		if err != nil {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens: %s: %w", spec.TokensAuto, err))
		}
		return marks.tokens, nil
	}
	var tokens []int32
	for i, name := range names {
		id, ok := tokenOf(codec, name)
		if !ok {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens[%d]: the model has no token %q: give the text of one token, such as <tool_call>, or its id as text", i, name))
		}
		if slices.Contains(tokens, id) {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens[%d]: %q is token %d, which is named before: name each token once", i, name, id))
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

// tokenOf finds a token by its text or its id. The tokens of a built-in codec have ids
// alone.
func tokenOf(codec dialog.Codec, name string) (int32, bool) {
	if sparse, ok := codec.(dialog.Sparse); ok {
		return sparse.TokenID(name)
	}
	n, err := strconv.ParseInt(name, 10, 32)
	return int32(n), err == nil && n >= 0 && int(n) < codec.VocabSize()
}

// AdapterOf returns the numbers of an adapter that the spec describes and that trains the
// rows of tokens.
func AdapterOf(l spec.LoRA, tokens []int32) model.LoRA {
	a := model.LoRA{Rank: l.Rank, Alpha: l.Alpha, Targets: l.Targets, BasePrecision: model.Precision(l.BasePrecision), Tokens: tokens}
	if a.BasePrecision == model.F32 {
		a.BasePrecision = "" // the same as if the spec does not set it
	}
	return a
}

// twinMarks are marks of tool calls whose rows of the output layer are those of other
// tokens, too.
type twinMarks struct {
	tokens []int32
	number int      // of other tokens with the row of one of them
	others []string // texts of some of those
}

// findTwins compares the marks of the codec's tool calls with all other tokens of the
// model in a directory. A format whose calls need no marks has none.
func findTwins(dir string, codec dialog.Codec) (found twinMarks, err error) {
	sparse, ok := codec.(dialog.Sparse)
	if !ok || !slices.Contains([]string{"hermes", "qwen3_xml"}, sparse.ToolFormat()) || len(sparse.CallTokens()) == 0 {
		return found, nil
	}
	stored, err := hf.OpenDirectory(dir)
	if err != nil {
		return found, err
	}
	defer func() { _ = stored.Close() }() // only read
	marks := sparse.CallTokens()
	twins, err := stored.Twins(marks, sparse.Unused(stored.Architecture.VocabSize))
	if err != nil {
		return found, err
	}
	for _, mark := range marks {
		t, ok := twins[mark]
		if !ok {
			continue
		}
		found.tokens = append(found.tokens, mark)
		found.number = max(found.number, t.Number)
		for _, other := range t.Tokens {
			if text := codec.Text([]int32{other}); !slices.Contains(marks, other) && !slices.Contains(found.others, text) {
				found.others = append(found.others, text)
			}
		}
	}
	return found, nil
}

// Unlearnable says which marks of the codec's tool calls no adapter of the model in a
// directory can learn to write, because other tokens have the same row of the output
// layer, and the adapter does not train it: trained lists the tokens whose rows it trains.
// It returns "" if there are none.
func Unlearnable(dir string, codec dialog.Codec, trained []int32) (string, error) {
	found, err := findTwins(dir, codec)
	if err != nil {
		return "", err
	}
	var names []string
	for _, mark := range found.tokens {
		if !slices.Contains(trained, mark) {
			names = append(names, codec.Text([]int32{mark}))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	such := ""
	if len(found.others) > 0 {
		such = ", such as " + strings.Join(found.others[:min(2, len(found.others))], " and ")
	}
	return fmt.Sprintf("in this model the marks of tool calls, %s, have the same row of the output layer as %d other tokens%s: an adapter (model.lora) of linear layers can't learn to tell them apart. "+
		"Train their rows, too: model.lora.trainable_tokens: [auto]; or name a format whose calls need no marks, such as llama3_json, as model.tool_parser with a template that shows it as model.template; "+
		"or train the complete model, without model.lora; or take a base that was trained with tools",
		strings.Join(names, " and "), found.number, such), nil
}
