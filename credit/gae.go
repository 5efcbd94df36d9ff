package credit

// byTurn implements generalized advantage estimation over calls (turn-PPO,
// arXiv:2512.17008). V_k is the critic's value before the first token of call k. r_k is
// the call's own reward, to which the last call adds the reward of the trajectory:
//
//	δ_k = r_k + γ·V_(k+1) − V_k,  A_k = δ_k + γλ·A_(k+1)
//
// After the last call V and A are 0, because an attempt ends there. Skipped calls are
// passed over, as tokens of observations are in PPO: they neither discount nor add a
// reward, and the next trained call is the successor. Calls without a token, which have
// no value, are passed over as well, but their own rewards go to the trained call before
// them. The critic's target is A_k + V_k at every token of the call.
func (p Plan) byTurn(b batch, out Advantages) {
	for _, t := range b.paths {
		var next estimate
		pending := t.reward
		for j := len(t.trained) - 1; j >= 0; j-- {
			k := t.trained[j]
			c := t.calls[k]
			pending += c.earned()
			if c.Tokens == 0 {
				continue
			}
			next = next.before(c.Values[0], pending, p.Discount, p.Lambda)
			pending = 0
			out.Call[t.group][t.sample][k] = next.advantage
			returns := out.Returns[t.group][t.sample][k]
			for i := range returns {
				returns[i] = next.advantage + next.value
			}
		}
	}
}

// byToken implements generalized advantage estimation over the trained tokens of a
// trajectory, in their order (Schulman et al., 2015, arXiv:1506.02438; PPO):
//
//	δ_t = r_t + γ·V_(t+1) − V_t,  Â_t = δ_t + γλ·Â_(t+1),  return Â_t + V_t
//
// The last token of a call has the call's own reward, a token with a penalty has the
// penalty, and the last token of the trajectory adds the reward of the trajectory. Tokens
// of observations and of skipped calls are passed over: V and Â of the successor reach
// the token before them unchanged. The advantage of a call is the mean of those of its
// tokens.
func (p Plan) byToken(b batch, out Advantages) {
	for _, t := range b.paths {
		var next estimate
		pending := t.reward
		for j := len(t.trained) - 1; j >= 0; j-- {
			k := t.trained[j]
			c := t.calls[k]
			pending += c.Reward
			tokens, returns, sum := out.Token[t.group][t.sample][k], out.Returns[t.group][t.sample][k], 0.0
			for i := c.Tokens - 1; i >= 0; i-- {
				if c.penalties != nil {
					pending += c.penalties[i]
				}
				next = next.before(c.Values[i], pending, p.Discount, p.Lambda)
				pending = 0
				tokens[i], returns[i] = next.advantage, next.advantage+next.value
				sum += next.advantage
			}
			if c.Tokens > 0 {
				out.Call[t.group][t.sample][k] = sum / float64(c.Tokens)
			}
		}
	}
}

// estimate is a critic's value and the advantage at one point of a trajectory; zero
// after its end.
type estimate struct{ value, advantage float64 }

// before returns the estimate one point earlier in the trajectory.
func (e estimate) before(value, reward, discount, lambda float64) estimate {
	delta := reward + discount*e.value - value
	return estimate{value, delta + discount*lambda*e.advantage}
}

// byDifference gives each call its own reward and the change of the estimated reward that
// the call made:
//
//	A_k = e_k + V̂_(k+1) − V̂_k
//
// After the last call, the reward itself takes the place of the estimate. The sum over a
// trajectory is its reward and all rewards of its calls, less the estimate before its
// first trained call. Skipped calls are passed over.
func byDifference(b batch, out Advantages) {
	for _, t := range b.paths {
		after := t.reward
		for j := len(t.trained) - 1; j >= 0; j-- {
			k := t.trained[j]
			c := t.calls[k]
			out.Call[t.group][t.sample][k] = c.earned() + after - c.Before
			after = c.Before
		}
	}
}
