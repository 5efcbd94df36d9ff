package jinja

// slice is value[from:to:step]; nil stands for what is left out.
func (r *run) slice(of any, bounds [3]any) any {
	switch of := of.(type) {
	case *undefined:
		r.undefined(of)
	case string:
		return r.sliceText(of, bounds)
	case markup:
		r.refuse("a slice of a string that is marked as safe")
	case *list:
		return &list{r.sliceItems(of.items, bounds)}
	case *tuple:
		return &tuple{r.sliceItems(of.items, bounds)}
	case *interval:
		r.refuse("a slice of a range")
	}
	r.wrong("a slice of a %s", typeName(of))
	return nil
}

// bounds are those of a slice of n items: it takes count items from start on.
func (r *run) bounds(n int, bounds [3]any) (start, step, count int) {
	step = 1
	if s, given := r.bound(bounds[2]); given {
		step = s
	}
	if step == 0 {
		r.wrong("a slice with step 0")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	limit := func(v any, otherwise int) int {
		i, given := r.bound(v)
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		start = limit(bounds[0], 0)
		count = max(0, limit(bounds[1], n)-start+step-1) / step
		return start, step, count
	}
	start = limit(bounds[0], n-1)
	count = max(0, start-limit(bounds[1], -1)-step-1) / -step
	return start, step, count
}

// mostBound keeps bounds from overflowing; no list or string is as long.
const mostBound = 1 << 40

func (r *run) bound(v any) (i int, given bool) {
	switch v := v.(type) {
	case nil, none:
		return 0, false
	case int64:
		return int(min(max(v, -mostBound), mostBound)), true
	case bool:
		r.refuse("a bool as the bound of a slice")
	case *undefined:
		r.wrong("%s, the bound of a slice, is undefined", v.what)
	}
	r.wrong("a %s as the bound of a slice", typeName(v))
	return 0, false
}

func (r *run) sliceItems(items []any, bounds [3]any) []any {
	start, step, count := r.bounds(len(items), bounds)
	if step == 1 {
		return items[start : start+count : start+count]
	}
	r.make(valueSize * count)
	r.step(count)
	all := make([]any, count)
	for i := range all {
		all[i] = items[start+i*step]
	}
	return all
}

func (r *run) sliceText(s string, bounds [3]any) any {
	r.make(len(s))
	r.step(len(s) / 16)
	if isASCII(s) {
		start, step, count := r.bounds(len(s), bounds)
		if step == 1 {
			return s[start : start+count]
		}
		all := make([]byte, count)
		for i := range all {
			all[i] = s[start+i*step]
		}
		return string(all)
	}
	characters := []rune(s)
	start, step, count := r.bounds(len(characters), bounds)
	all := make([]rune, count)
	for i := range all {
		all[i] = characters[start+i*step]
	}
	return string(all)
}
