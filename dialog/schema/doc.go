// Package schema turns a JSON Schema into the set of texts that a model may write
// to satisfy it, and says at each token of a reply which ones may come next.
//
// [Compile] makes a [Grammar] of a schema; [Builder] makes one of several values
// with a codec's own words and special tokens around them. A [Matcher] follows a
// text through it byte by byte, a [Constraint] token by token in the [Vocabulary]
// of a codec. The package is no validator: it leaves out values that would satisfy
// a schema, where it decides how they are written:
//
//   - Properties come in the order of the schema, additional ones after them. An
//     object that lists properties has no others, and an array that lists its first
//     items has no more, unless the schema speaks of them. Names of additional
//     properties are written without escapes, and may come twice.
//   - White space is at most one space after each comma and each colon.
//   - Numbers have up to 18 digits before and 18 behind the point; an exponent only
//     where no limit is set, of two digits. Limits are held exactly. Integers have
//     neither point nor exponent.
//   - Objects and arrays nest [MaxDepth] deep.
//   - The values of enum and const are written as the schema has them.
//   - A pattern is an expression of RE2, anchored where its ends say so. Beside
//     minLength and maxLength it must imply them or have one part, the repeat of one
//     character, that can take them up. Of strings by a pattern or a format only the
//     characters that need it are escaped.
//   - The formats date, time, date-time, uuid, email, hostname and ipv4 are held
//     where neither a pattern nor a length is given. Other formats are annotations.
//   - oneOf is anyOf.
//
// Strings, arrays and additional properties that the schema does not bound are not
// bounded here either: only the limit of a reply's tokens ends them. A keyword that
// restricts values and can't be held is refused by name and place, never ignored;
// the error wraps [ErrSchema]. Keywords that nobody knows are annotations, and so is
// nullable. References lead to places in the same schema.
//
// Guarantees: a text of allowed bytes can always be completed, and a completed text is
// valid UTF-8 and satisfies the schema. A schema of any origin soon gives a grammar or an
// error. The sets depend on the schema and the text alone, so that a trainer finds those
// that a sampler obeyed.
package schema
