CREATE TABLE teacher (id INTEGER PRIMARY KEY, name TEXT, subject TEXT, salary REAL, hired DATE);
CREATE TABLE pupil (id INTEGER PRIMARY KEY, name TEXT, age INT, teacher_id INT REFERENCES teacher(id), grade REAL, phone BIGINT);
CREATE TABLE empty_room (id INTEGER PRIMARY KEY, floor INT);
INSERT INTO teacher VALUES
  (1, 'Abel', 'math', 3100.5, '2001-05-06'), (2, 'Berg', 'art', 2900.25, '2010-09-01'),
  (3, 'Cole', 'math', 3100.5, '2001-05-06 00:00:00'), (4, 'Dahl', NULL, NULL, NULL);
INSERT INTO pupil VALUES
  (1, 'Ann', 9, 1, 1.1, 5551234567), (2, 'Bob', 10, 1, 2.2, 5551234568), (3, 'Cid', 10, 2, 3.3, NULL),
  (4, 'Ann', 11, 3, 0.1, 5551234570), (5, 'Eve', 9, 3, 0.2, 5551234571), (6, 'Fay', 12, NULL, NULL, 5551234567);
