"""What we found in the field: recent statements on Muon from outside the five papers, each judged
by a small experiment.
"""
