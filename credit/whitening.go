package credit

import "math"

// whitenEpsilon is added to the variance and keeps the quotient finite. The value is that
// of verl.
const whitenEpsilon = 1e-8

// whiten brings the advantages of all trained tokens of a batch to mean 0 and
// deviation 1 (REINFORCE++, arXiv:2501.03262; PPO; GDPO):
//
//	A' = (A − mean)/√(var + 1e-8)
//
// The variance is the unbiased one, and epsilon stands under the root, as in verl;
// tokens that are not trained neither count nor change. Every token weighs alike, so
// a long call weighs more than a short one. Where all tokens have one advantage they
// get 0 exactly, also a lone token, which verl refuses.
func (a Advantages) whiten(b batch) {
	var w whitening
	a.visit(b, w.count)
	w.mean = w.sum / w.weight
	a.visit(b, w.measure)
	a.visit(b, w.apply)
	if a.Token == nil {
		return
	}
	for _, t := range b.paths {
		for _, k := range t.trained {
			a.Call[t.group][t.sample][k] = mean(a.Token[t.group][t.sample][k])
		}
	}
}

// visit calls see for every trained call. If tokens have their own advantages, it passes
// those with weight 1; otherwise it passes the call's one advantage, with the number of
// its tokens as the weight.
func (a Advantages) visit(b batch, see func(x []float64, weight float64)) {
	for _, t := range b.paths {
		for _, k := range t.trained {
			if t.calls[k].Masked {
				continue
			}
			if a.Token == nil {
				see(a.Call[t.group][t.sample][k:k+1], float64(t.calls[k].Tokens))
			} else {
				see(a.Token[t.group][t.sample][k], 1)
			}
		}
	}
}

// whitening holds the sums over the numbers so far.
type whitening struct {
	weight, sum, mean, squares float64
	first                      float64
	varies                     bool
}

func (w *whitening) count(x []float64, weight float64) {
	if weight == 0 || len(x) == 0 {
		return
	}
	if w.weight == 0 {
		w.first = x[0]
	}
	sum := 0.0
	for _, v := range x {
		w.varies = w.varies || v != w.first
		sum += v
	}
	w.weight += weight * float64(len(x))
	w.sum += weight * sum
}

func (w *whitening) measure(x []float64, weight float64) {
	sum := 0.0
	for _, v := range x {
		sum += (v - w.mean) * (v - w.mean)
	}
	w.squares += weight * sum
}

func (w *whitening) apply(x []float64, _ float64) {
	if !w.varies {
		clear(x)
		return
	}
	by := math.Sqrt(w.squares/(w.weight-1) + whitenEpsilon)
	for i, v := range x {
		x[i] = (v - w.mean) / by
	}
}

func mean(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
