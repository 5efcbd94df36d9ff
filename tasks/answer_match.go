package tasks

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// gradeAnswers returns the best score of a result over the answers that a task accepts.
// The score is the F1 of the words, or with the metric "exact" 1 if the words are the
// same, else 0. An answer without words, such as "A" or "...", is compared as it is
// written: otherwise a result without words would be right.
func gradeAnswers(metric, answer, result string) float64 {
	best := 0.0
	got := answerWords(result)
	for _, one := range splitAnswers(answer) {
		want := answerWords(one)
		score := 0.0
		switch {
		case len(want) == 0:
			score = reward(strings.EqualFold(strings.Join(strings.Fields(one), " "), strings.Join(strings.Fields(result), " ")))
		case slices.Equal(want, got):
			score = 1
		case metric != spec.MetricExact && !isVerdict(want) && !isVerdict(got):
			score = wordF1(want, got)
		}
		best = max(best, score)
	}
	return best
}

// isVerdict reports whether an answer is one of those that HotpotQA's evaluation takes as
// a whole. Otherwise naming both would earn two thirds.
func isVerdict(words []string) bool {
	return len(words) == 1 && (words[0] == "yes" || words[0] == "no" || words[0] == "noanswer")
}

// Wordless returns the ids of the tasks with an answer for the grader "qa" that consists
// of articles and punctuation. Only that very text is right for it.
func Wordless(list []Task) []string {
	var ids []string
	for _, t := range list {
		if slices.ContainsFunc(splitAnswers(t.Answer), func(one string) bool { return len(answerWords(one)) == 0 }) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// answerWords returns the words of an answer in the form in which the evaluations of
// SQuAD, HotpotQA and MuSiQue compare them: in lower case, without ASCII punctuation and
// without articles.
func answerWords(text string) []string {
	text = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			return -1
		}
		return r
	}, cases.Lower(language.Und).String(text))
	var b strings.Builder
	for text != "" {
		n := strings.IndexFunc(text, func(r rune) bool { return !wordRune(r) })
		if n < 0 {
			n = len(text)
		}
		switch word := text[:n]; word {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(word)
		}
		text = text[n:]
		n = strings.IndexFunc(text, wordRune)
		if n < 0 {
			n = len(text)
		}
		b.WriteString(text[:n])
		text = text[n:]
	}
	return strings.Fields(b.String())
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// wordF1 returns the harmonic mean of precision and recall of the words of a result. A
// word that occurs several times counts as often.
func wordF1(want, got []string) float64 {
	left := map[string]int{}
	for _, word := range want {
		left[word]++
	}
	common := 0
	for _, word := range got {
		if left[word] > 0 {
			left[word]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(len(got)), float64(common)/float64(len(want))
	return 2 * precision * recall / (precision + recall)
}

// answerIn returns the part of a result that a grader compares. ok is false if the result
// does not have the place that grader.extract describes.
func answerIn(e spec.Extraction, result string) (answer string, ok bool) {
	switch e.Kind {
	case spec.ExtractBoxed:
		answer, ok = numbers.Boxed(result)
	case spec.ExtractAfter:
		answer, ok = after(result, e.Text)
		answer, _, _ = strings.Cut(strings.TrimSpace(answer), "\n")
	case spec.ExtractRegex:
		answer, ok = lastMatch(e, result)
	default:
		answer, ok = result, true
	}
	return strings.TrimSpace(answer), ok
}

// numberIn returns the number in a result that a grader compares.
func numberIn(e spec.Extraction, result string) (*big.Rat, bool) {
	switch e.Kind {
	case spec.ExtractLastNumber:
		return numbers.Last(result)
	case spec.ExtractAfter:
		rest, ok := after(result, e.Text)
		if !ok {
			return nil, false
		}
		return numbers.First(rest)
	case spec.ExtractBoxed, spec.ExtractRegex:
		text, ok := answerIn(e, result)
		if !ok {
			return nil, false
		}
		return numbers.Only(text)
	}
	rest, marked := result, false
	for {
		_, behind, found := strings.Cut(rest, answerMark)
		if !found {
			break
		}
		if value, ok := numbers.First(behind); ok {
			return value, true
		}
		rest, marked = behind, true
	}
	if text, ok := numbers.Boxed(result); ok {
		return numbers.Only(text)
	}
	if marked {
		return nil, false
	}
	return numbers.Last(result)
}

// after returns what follows the last occurrence of a text that anything follows.
func after(result, text string) (string, bool) {
	result = strings.TrimSpace(result)
	for {
		at := strings.LastIndex(result, text)
		if at < 0 {
			return "", false
		}
		if rest := result[at+len(text):]; strings.TrimSpace(rest) != "" {
			return rest, true
		}
		result = strings.TrimSpace(result[:at])
	}
}

// lastMatch returns the first group of the last match, or the complete match of a pattern
// without groups.
func lastMatch(e spec.Extraction, result string) (string, bool) {
	all := e.Pattern.FindAllStringSubmatch(result, -1)
	if len(all) == 0 {
		return "", false
	}
	last := all[len(all)-1]
	return last[min(1, len(last)-1)], true
}

// closeTo reports whether two numbers differ by at most a tolerance. The tolerance is the
// decimal number that was written, not the binary one nearest to it.
func closeTo(a, b *big.Rat, tolerance float64) bool {
	most, ok := new(big.Rat).SetString(strconv.FormatFloat(tolerance, 'g', -1, 64))
	if !ok {
		return false // infinite, which specs can't have
	}
	difference := new(big.Rat).Sub(a, b)
	return difference.Abs(difference).Cmp(most) <= 0
}
