package conversation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// The codes of requests that no policy, or more than one, would answer.
const (
	codeNoPolicy        = "no_policy"
	codeAmbiguousPolicy = "ambiguous_policy"
)

// choosePolicy decides which policy answers a request, whose dialog must be complete; see
// resume.
func (c *Conversation) choosePolicy(r *Request) (err error) {
	r.policy, err = policyOf(c.begun.Terms, r)
	return err
}

// policyOf returns the policy that answers a request under the terms. It depends on nothing
// else, so every gateway decides the same. Rules look at the dialog as the agent sent it,
// before prompts replace parts of it. A prompt that is no dialog has no messages.
func policyOf(terms record.Terms, r *Request) (string, error) {
	if len(terms.Policies) == 0 {
		return terms.Policy, nil
	}
	var names, found, rest []string
	for _, rule := range terms.Policies {
		names = append(names, rule.Policy)
		switch {
		case len(rule.Match) == 0:
			rest = append(rest, rule.Policy)
		case slices.ContainsFunc(rule.Match, func(m record.PolicyMatch) bool { return agrees(m, terms, r) }):
			found = append(found, rule.Policy)
		}
	}
	if len(found) == 0 {
		found = rest
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", refusePolicy(codeNoPolicy, "no policy answers this request %s: the policies are %s: change policies.NAME.match of the spec, so that one of them answers it",
			origin(terms, r), strings.Join(names, ", "))
	}
	return "", refusePolicy(codeAmbiguousPolicy, "%d policies answer this request %s: %s: change policies.NAME.match of the spec, so that only one of them answers it",
		len(found), origin(terms, r), strings.Join(found, ", "))
}

func refusePolicy(code, format string, args ...any) error {
	f := wire.Invalid("model", format, args...)
	f.Code = code
	return f
}

// origin says in words who asks for what.
func origin(terms record.Terms, r *Request) string {
	agent := fmt.Sprintf("of agent %q", r.Agent)
	if r.Agent == "" {
		agent = "of an agent without a name"
	}
	return fmt.Sprintf("%s for model %q", agent, modelOf(terms, r))
}

// modelOf returns the model that the agent asks for. That of a request which names none is
// the policy of the terms.
func modelOf(terms record.Terms, r *Request) string { return cmp.Or(r.Model, terms.Policy) }

// agrees reports whether a request agrees with all that a match gives.
func agrees(m record.PolicyMatch, terms record.Terms, r *Request) bool {
	switch {
	case m.Agent != "" && m.Agent != r.Agent, m.Model != "" && m.Model != modelOf(terms, r):
		return false
	case m.Exact == "" && m.Prefix == "":
		return true
	}
	role := dialog.Role(m.Role)
	if role == "" || role == developer {
		role = dialog.System // APIs have one or the other, and dialogs one for both
	}
	for i, message := range r.Dialog {
		if message.Role == role && (m.Position == nil || *m.Position == i) &&
			(m.Exact == "" || message.Content == m.Exact) && strings.HasPrefix(message.Content, m.Prefix) {
			return true
		}
	}
	return false
}

// developer is another name of the system's role.
const developer dialog.Role = "developer"

// readBy returns the reply of the call as a policy reads it in a dialog whose client
// repeats it as sent. The call's own policy has thought what it said, whether the client
// repeats its reasoning or not. Another policy reads what the client says.
func (c *Call) readBy(policy string, sent dialog.Message) dialog.Message {
	m := c.message
	if c.Policy != policy && strings.TrimSpace(sent.Reasoning) == "" {
		m.Reasoning = ""
	}
	return m
}
