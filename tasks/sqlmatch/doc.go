// Package sqlmatch grades SQL: a query is right if it returns what the gold query
// of a task returns, on the task's SQLite database.
//
// The rules follow the official evaluation of Spider, its execution match
// (https://github.com/taoyds/test-suite-sql-eval; Zhong et al., "Semantic Evaluation
// for Text-to-SQL with Distilled Test Suites", 2020): rows are a multiset, in order
// only if the gold query has an ORDER BY; columns may stand in any order; DISTINCT is
// removed from both queries unless a grader keeps it; all databases of the folder
// count where a folder is a test suite. One rule is wider: numbers that differ by
// rounding, relatively by at most 1e-9, are equal, unless both are whole.
//
// Queries come from models and may be hostile. They run on a connection that can
// only read, under an authorizer that allows nothing but selecting from this one
// database, with limits on steps, on time, on the rows that are kept, on the size of
// values, on what stays in memory and on what goes to temporary files. A query that is
// refused, fails or goes beyond a limit is wrong; it is no error. An error says that the
// database or the gold query can't be used.
//
// The package is no general access to SQLite: the store has its own. It calls the
// library below the driver, since neither authorizers nor limits on steps are to be
// had from database/sql, and the driver changes dates.
package sqlmatch
