import json
import os
import sqlite3


def connect(project):
    folder = os.environ["TRACKIO_DIR"]
    os.makedirs(folder, exist_ok=True)
    db = sqlite3.connect(os.path.join(folder, project + ".db"), timeout=60)
    db.execute("CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
    db.execute("CREATE TABLE IF NOT EXISTS configs (run_name TEXT PRIMARY KEY, config TEXT)")
    return db


def insert(run, metrics, step):
    with connect(run.project) as db:
        db.execute("INSERT OR REPLACE INTO configs VALUES (?, ?)", (run.name, json.dumps(run.config)))
        db.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", (run.name, step, json.dumps(metrics)))


class SQLiteStorage:
    @staticmethod
    def get_run_config(project, run):
        found = connect(project).execute("SELECT config FROM configs WHERE run_name = ?", (run,)).fetchone()
        return found and json.loads(found[0])

    @staticmethod
    def get_log_count(project, run, run_id=None):
        return connect(project).execute("SELECT count(*) FROM metrics WHERE run_name = ?", (run,)).fetchone()[0]

    @staticmethod
    def get_logs(project, run, run_id=None):
        rows = connect(project).execute("SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", (run,))
        return [{"step": step, "timestamp": "", **json.loads(text)} for step, text in rows]
