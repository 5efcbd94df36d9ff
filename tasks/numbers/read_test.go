package numbers_test

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// value returns the exact number that a test wrote; "" is none.
func value(t *testing.T, text string) *big.Rat {
	t.Helper()
	if text == "" {
		return nil
	}
	v, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return v
}

func check(t *testing.T, name string, read func(string) (*big.Rat, bool), text, want string) {
	t.Helper()
	got, ok := read(text)
	wanted := value(t, want)
	if wanted == nil {
		require.False(t, ok, "%s: %q gives %v", name, text, got)
		return
	}
	require.True(t, ok, "%s: %q gives none instead of %s", name, text, want)
	require.Zero(t, wanted.Cmp(got), "%s: %q gives %s instead of %s", name, text, got.RatString(), want)
}

func TestNumbersAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"72": "72", "-5": "-5", "+33": "33", "−5": "-5", "–5": "-5", "- 5": "-5", ".5": "1/2", "-.5": "-1/2", "0.1": "1/10", "3.3e1": "33", "1E+3": "1000", "1e-3": "1/1000",
		"3,000": "3000", "-1,234,567.5": "-1234567.5", "9{,}500": "9500", "9 500": "9500", "9\u202f500": "9500", "1 234 567.25": "1234567.25", `9\,500`: "9500", "９５": "95",
		"9007199254740993": "9007199254740993", "123456789012345678901234567890": "123456789012345678901234567890",
		"6/2": "3", "1/3": "1/3", "-1/2": "-1/2", "1 / 2": "1/2", "2 1/2": "5/2", "-2 1/2": "-5/2", "½": "1/2", "2½": "5/2", `\frac{1}{2}`: "1/2", `\dfrac12`: "1/2", `-\frac{3}{4}`: "-3/4", `\frac{-3}{4}`: "-3/4", `2\frac{1}{2}`: "5/2", `\frac{1{,}000}{3}`: "1000/3",
		`1.2 \times 10^{6}`: "1200000", "1.2 × 10^6": "1200000", "1.2*10**6": "1200000", "10^3": "1000", `10^{-2}`: "1/100", "3 x 10^2": "300",
		"$29.00": "29", "-$5": "-5", "$-5": "-5", "−$5": "-5", "$ 29": "29", "29 €": "29", "£1,000": "1000", `\$29`: "29", "50%": "50", `50\%`: "50", "12.5 %": "12.5",
		"**72**": "72", "*72*": "72", "__72__": "72", "`72`": "72", "$72$": "72", `\(72\)`: "72", `\[ 72 \]`: "72", "$$72$$": "72", `\boxed{72}`: "72", `\text{72}`: "72", `\mathbf{\frac{1}{2}}`: "1/2", "(72)": "72", "72.": "72", "90°": "90", `90^\circ`: "90", `90^{\circ}`: "90", `\left(72\right)`: "72",

		"": "", "x": "", "72 clips": "", "72x": "", "72 73": "", "72, 73": "", "30,00": "", "3,00,0": "", ",3000": "", "1.2.3": "", "0x21": "", "3_3": "", "NaN": "", "inf": "", "1e999": "", "1e999999999": "", "1/0": "", "3/4/2020": "", "10:30": "", "10-12": "", "48+24": "", "6*2": "", "2^10": "", "10²": "", "3 5/2": "", "1.234,56": "",
		`\sqrt{2}`: "", `2\sqrt{3}`: "", `2\pi`: "", "2π": "", `\frac{\sqrt{3}}{2}`: "", `\frac{x}{2}`: "", `5 \pm 2`: "", "20/2^3": "", `0.\overline{3}`: "", "2 - -3": "", "2(3)": "", "5k": "", "--5": "",
	} {
		check(t, "Read", numbers.Read, text, want)
	}
}

func TestNumbersAreFoundInText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"The answer is 72.": "72", "48+24 = 72": "72", "so 48 + 24 = **72** clips!": "72", "33 apples": "33", "It costs $29.00 per day.": "29", "between 10 and 12": "12", "72kg": "72", "$5/hour": "5", "Total: -24": "-24", "Total -24": "-24", "Total - 24": "24", "- 5 apples": "5",
		"x = 5": "5", "x=-5": "-5", "In H2O and A4, GPT-4 says 7": "7", "the area is 12 cm^2": "12", `12\text{ cm}^2`: "12", "12 m²": "12", "1. 72": "72", "5th of 30": "30", "答案是72。": "72", "2 million people": "2000000", "half of 3 hundred": "300", "He paid 1/2 of it": "1/2", "**Answer:** 72 (seventy-two)": "72",
		`\begin{aligned} x &= 72 \end{aligned}`: "72", "We get 72, i.e. 6 dozen": "6", "Step 1: 72\nStep 2: 73": "73", "ten": "", "no number": "",
		"The answer is 48+24": "", "about 2^10": "", "a*b is 3*4": "", "at 10:30": "", "10-12 days": "", "3 x 24": "", "on 2020-01-05": "", "call 555-1234": "", "x-5": "", "5x + 3": "", `the area is 2\pi`: "", "72 * x": "", "It is 72/x": "", "v1.2.3": "",
	} {
		check(t, "Last", numbers.Last, text, want)
	}
	for text, want := range map[string]string{"72": "72", "72, 73": "72", " $18.": "18", ": **72** clips": "72", "x = 5": "5", "USD 29": "29", "6/2": "3", "= 1,080 dollars": "1080", "none 72": "", "": "", "48+24": "", "A4 72": ""} {
		check(t, "First", numbers.First, text, want)
	}
	for text, want := range map[string]string{"72": "72", "x = 72": "72", "72 clips": "72", "72, 73": "", "(3, 4)": "", "": ""} {
		check(t, "Only", numbers.Only, text, want)
	}
}

func TestLongTextsAreReadQuickly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("1e400 ", 40_000), strings.Repeat("9", 1<<18), strings.Repeat(`\frac{`, 40_000), strings.Repeat(`\boxed{\text{`, 20_000), strings.Repeat(" ", 1<<18) + "7",
		strings.Repeat("1 / ", 60_000), strings.Repeat("1 ", 30_000), strings.Repeat("-", 1<<18) + "7", strings.Repeat("{", 1<<18), strings.Repeat("½", 30_000), strings.Repeat("123 456 ", 30_000),
	} {
		start := time.Now()
		_, _ = numbers.Last(text)
		require.Less(t, time.Since(start), 10*time.Second, "%.20s", text)
	}
}
