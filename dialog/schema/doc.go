// Package schema turns a JSON Schema into the set of texts that a model may write to
// satisfy it, and says at each token of a reply which tokens may come next.
//
// [Compile] makes a [Grammar] of a schema. [Builder] makes one of several values, with a
// codec's own words and special tokens around them, also of objects whose properties the
// codec writes one by one ([Members]). [Arguments] has the types of such properties. A
// [Matcher] follows a text through a grammar byte by byte, and a [Constraint] does so
// token by token in the [Vocabulary] of a codec. The package is no validator. It decides
// how values are written, and so leaves out some values that would satisfy a schema:
//
//   - Properties come in the order of the schema, additional ones after them. An
//     object that lists properties has no others, and an array that lists its first
//     items has no more, unless the schema says something about the others. Names of
//     additional properties are written without escapes, and may occur twice.
//   - White space is at most one space after each comma and each colon.
//   - Numbers have up to 18 digits before and 18 after the point. They have an exponent,
//     of two digits, only where no limit is set. Limits are held exactly. Integers have
//     neither point nor exponent.
//   - Objects and arrays nest at most [MaxDepth] deep.
//   - The values of enum and const are written as in the schema.
//   - A pattern is a regular expression of RE2. It is anchored only where it has
//     anchors at its ends. In strings with a pattern or a format, only the characters that
//     need an escape are escaped.
//   - The formats date, time, date-time, uuid, email, hostname and ipv4 are held. Other
//     formats are annotations.
//   - Patterns, formats and lengths of one string are all held together. If they have too
//     many states to be told apart, the schema is refused.
//   - oneOf is treated as anyOf.
//
// Strings, arrays and additional properties that the schema does not bound are not
// bounded here either: only the limit of a reply's tokens ends them. A keyword that
// restricts values but is not supported is an error that names the keyword and its place.
// It is never ignored. Such an error wraps [ErrSchema]. A keyword that can't restrict any
// value that is possible otherwise is ignored. Unknown keywords are annotations,
// and so is nullable. References lead to places in the same schema.
//
// Guarantees: a text of allowed bytes can always be completed, and a completed text is
// valid UTF-8 and satisfies the schema. Any schema, also one from an untrusted source,
// soon gives a grammar or an error. The sets of allowed bytes and tokens depend on the
// schema and the text alone, so a trainer computes the same sets that the sampler used.
package schema
