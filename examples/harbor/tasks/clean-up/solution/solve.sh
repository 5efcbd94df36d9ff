#!/bin/bash
rm *.tmp
