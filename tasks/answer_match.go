package tasks

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/fulgurite/fulgurite/spec"
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
