#!/bin/bash
sort -n numbers.txt|tail -1 >max.txt
