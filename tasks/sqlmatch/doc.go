// Package sqlmatch grades SQL: a query is right if it returns the same as the gold query
// of a task, on the task's SQLite database.
//
// The rules follow the official evaluation of a data set. By default it is that of
// Spider, its execution match
// (https://github.com/taoyds/test-suite-sql-eval; Zhong et al., "Semantic Evaluation for
// Text-to-SQL with Distilled Test Suites", 2020):
//
//   - The rows are a multiset. Their order matters only if the gold query has an ORDER BY.
//   - The columns may be in any order.
//   - DISTINCT is removed from both queries unless a grader keeps it.
//   - If the database's folder is a test suite, all databases in it count.
//
// With the metric BIRD the rules are those of BIRD's execution accuracy
// (https://github.com/bird-bench/mini_dev; Li et al., "Can LLM Already Serve as A Database
// Interface?", 2023): the rows are a set, the order of columns counts, DISTINCT stays, and
// there are no test suites.
//
// One rule is wider: a number is equal to the nearest number of the gold result if they
// differ only by rounding, by at most 4 units in the last place, unless both are whole.
//
// Queries are written by models and may be hostile. They run on a connection that can
// only read, with an authorizer that allows only selecting from this one database. There
// are limits on steps, on time, on the rows that are kept, on the size of values, on
// memory and on temporary files. A query that is refused, fails or exceeds a limit is
// wrong; it is not an error, and the outcome says why. An outcome never repeats a value of
// the gold result, at most how many rows and columns that has. An error means that the
// database or the gold query can't be used.
//
// The package is not for general access to SQLite: the store has its own. It calls the
// library below the driver, because database/sql offers neither authorizers nor limits on
// steps, and because the driver changes dates.
package sqlmatch
