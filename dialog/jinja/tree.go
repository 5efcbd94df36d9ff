package jinja

// expression is a node that has a value.
type expression interface {
	eval(r *run) any
	// operands are the expressions that the node is made of, in the order of the
	// source.
	operands() []expression
}

// statement is a node that is carried out.
type statement interface {
	exec(r *run) flow
}

// block is a sequence of statements.
type block []statement

// flow says how a statement ended.
type flow int

const (
	onward flow = iota
	breaking
	continuing
)

type (
	constant struct{ value any }
	variable struct {
		pos  int
		name string
		location
		// assigned says that Python takes for granted that the variable has a value.
		assigned bool
	}
	tupleLiteral struct{ items []expression }
	listLiteral  struct{ items []expression }
	dictLiteral  struct {
		pos          int
		keys, values []expression
	}
	attribute struct {
		pos  int
		of   expression
		name string
	}
	item struct {
		pos     int
		of, key expression
	}
	// slice is of[from:to:step]; what is left out is nil.
	slice struct {
		pos                int
		of, from, to, step expression
	}
	call struct {
		pos int
		of  expression
		arguments
	}
	filter struct {
		pos   int
		of    expression
		name  string
		apply applied
		arguments
	}
	test struct {
		pos   int
		of    expression
		name  string
		apply applied
		arguments
	}
	unary struct {
		pos int
		op  string
		of  expression
	}
	binary struct {
		pos         int
		op          string
		left, right expression
	}
	negation struct{ of expression }
	// choice is "and" or "or": its value is that of one of its sides.
	choice struct {
		and         bool
		left, right expression
	}
	concatenation struct{ parts []expression }
	// comparison is a chain: 1 < x <= 3.
	comparison struct {
		pos   int
		first expression
		rest  []compared
	}
	compared struct {
		op string
		to expression
	}
	conditional struct {
		pos                   int
		test, then, otherwise expression
	}
	// captured is the text of a block, to which a filter is applied.
	captured struct{}
)

// applied is what a filter or a test does with a value.
type applied func(r *run, v any, a actual) any

// arguments are those of a call, a filter or a test.
type arguments struct {
	positional []expression
	named      []namedArgument
	spread     expression // *list behind the positional ones, or nil
}

type namedArgument struct {
	name  string
	value expression
}

func (a arguments) operands() []expression {
	all := append([]expression(nil), a.positional...)
	for _, one := range a.named {
		all = append(all, one.value)
	}
	if a.spread != nil {
		all = append(all, a.spread)
	}
	return all
}

func with(first expression, rest ...expression) []expression {
	var all []expression
	for _, e := range append([]expression{first}, rest...) {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

func (*constant) operands() []expression       { return nil }
func (*variable) operands() []expression       { return nil }
func (*captured) operands() []expression       { return nil }
func (e *tupleLiteral) operands() []expression { return e.items }
func (e *listLiteral) operands() []expression  { return e.items }
func (e *dictLiteral) operands() []expression {
	var all []expression
	for i := range e.keys {
		all = append(all, e.keys[i], e.values[i])
	}
	return all
}
func (e *attribute) operands() []expression     { return with(e.of) }
func (e *item) operands() []expression          { return with(e.of, e.key) }
func (e *slice) operands() []expression         { return with(e.of, e.from, e.to, e.step) }
func (e *call) operands() []expression          { return with(e.of, e.arguments.operands()...) }
func (e *filter) operands() []expression        { return with(e.of, e.arguments.operands()...) }
func (e *test) operands() []expression          { return with(e.of, e.arguments.operands()...) }
func (e *unary) operands() []expression         { return with(e.of) }
func (e *binary) operands() []expression        { return with(e.left, e.right) }
func (e *negation) operands() []expression      { return with(e.of) }
func (e *choice) operands() []expression        { return with(e.left, e.right) }
func (e *concatenation) operands() []expression { return e.parts }
func (e *comparison) operands() []expression {
	all := with(e.first)
	for _, c := range e.rest {
		all = append(all, c.to)
	}
	return all
}
func (e *conditional) operands() []expression { return with(e.test, e.then, e.otherwise) }

type (
	plainText struct{ text string }
	output    struct {
		pos int
		of  expression
	}
	assignment struct {
		pos    int
		target target
		value  expression
	}
	// captureAssignment is {% set x %}…{% endset %}; filtered is nil or filters
	// around a captured.
	captureAssignment struct {
		target   target
		filtered expression
		body     block
		layout
	}
	branches struct {
		tests     []expression
		bodies    []block
		otherwise block
	}
	loop struct {
		pos      int
		target   target
		of       expression
		test     expression
		body     block
		fallback block
		layout
		fallbackLayout layout
		// extended says that the body uses the variable loop, whose location is special.
		extended bool
		special  location
		// testTarget, testLayout and testSlots belong to the function that filters the
		// items.
		testTarget target
		testLayout layout
		testSlots  int
	}
	macro struct {
		pos        int
		name       string
		location   // of the macro itself, in the frame that defines it
		parameters []parameter
		body       block
		layout
		// caller is the slot of the variable caller; −1 where the body doesn't use it.
		caller int
		slots  int
	}
	parameter struct {
		name     string
		slot     int
		fallback expression // or nil
	}
	// callBlock is {% call %}; without of it is {% generation %}, which is its body.
	callBlock struct {
		pos  int
		of   *call
		body *macro
	}
	filterBlock struct {
		filtered expression
		body     block
		layout
	}
	withBlock struct {
		targets []target
		values  []expression
		body    block
		layout
	}
	leave struct {
		pos  int
		flow flow
	}
)

// target is what is assigned to: a variable, an attribute of a namespace or, with
// parts, a tuple of targets.
type target struct {
	pos       int
	name      string
	attribute string
	tuple     bool
	parts     []target
	location
}
