"""Many questions, one throwaway sandbox each.

lines      the file of questions, checked as a whole before anything starts
results    what became of each, one JSON line each, and which are there already
schedule   so many at once, again after an engine's error, ended together
summary    what a person sees meanwhile and at the end
"""
